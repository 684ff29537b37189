"""Images: reading them, preparing them for a network, and datasets, one file each, by their names."""

from __future__ import annotations

from ..options import Option
from . import aircraft as _aircraft
from . import cars as _cars
from . import csv as _csv
from . import cub as _cub
from . import dtd as _dtd
from . import folder as _folder
from . import textures as _textures
from .contract import BOXES, DatasetKind

_SEED = Option("The seed of what is drawn at random.", name="seed", kind=int, at_least=0)
_SPLIT = (
    Option("The share of every class to test on.", name="test_share", kind=float, above=0, below=1),
    _SEED,
)
_BOX = Option("Cut out training images, or both, by their boxes.", name="box", choices=BOXES)
_CUT_OUT = "; box=train cuts training images out by their boxes, box=both all"
_CUT = (
    f"; if unsplit, test_share ({_folder.TEST_SHARE}) of every class becomes the test split, by seed ({_folder.SEED})"
)

DATASETS: dict[str, DatasetKind] = {
    "cub": DatasetKind(
        _cub.cub,
        about=f"Caltech-UCSD Birds 200-2011, or a part of it{_CUT_OUT}",
        layout=_cub.LAYOUT,
        options=(_BOX,),
    ),
    "cars": DatasetKind(
        _cars.cars,
        about=f"Stanford Cars, old and new layout{_CUT_OUT}",
        layout=_cars.LAYOUT,
        options=(_BOX,),
    ),
    "aircraft": DatasetKind(
        _aircraft.aircraft,
        about="FGVC-Aircraft 2013b; 512, crop 448",
        layout=_aircraft.LAYOUT,
        options=(Option("What the classes are.", name="level", choices=tuple(_aircraft.LEVELS)),),
    ),
    "dtd": DatasetKind(
        _dtd.dtd,
        about="Describable Textures, train and val joined",
        layout=_dtd.LAYOUT,
        options=(Option("Which of the ten splits.", name="split", kind=int, at_least=1, at_most=10),),
    ),
    "folder": DatasetKind(
        _folder.folder, about=f"your images, a folder a class{_CUT}", layout=_folder.LAYOUT, options=_SPLIT
    ),
    "csv": DatasetKind(_csv.csv, about=f"your images, a table{_CUT}", layout=_csv.LAYOUT, options=_SPLIT),
    "textures": DatasetKind(
        _textures.textures,
        about="patches of photographs that come with scikit-image",
        layout="built in: pip install 'bcnn[demo]'",
        options=(Option("Patches per class and split.", name="per_class", kind=int, at_least=1), _SEED),
        built_in=True,
    ),
}
