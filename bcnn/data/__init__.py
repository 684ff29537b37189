"""Images: reading them, preparing them for a network, and datasets, one file each, by their names."""

from __future__ import annotations

from . import aircraft as _aircraft
from . import cars as _cars
from . import csv as _csv
from . import cub as _cub
from . import dtd as _dtd
from . import folder as _folder
from . import textures as _textures
from .contract import DatasetKind
from .options import one_of, share, whole

_SPLIT = {"test_share": share, "seed": whole(0)}
_CUT = (
    f"; if unsplit, test_share ({_folder.TEST_SHARE}) of every class becomes the test split, by seed ({_folder.SEED})"
)

DATASETS: dict[str, DatasetKind] = {
    "cub": DatasetKind(_cub.cub, about="Caltech-UCSD Birds 200-2011, or a part of it", layout=_cub.LAYOUT),
    "cars": DatasetKind(_cars.cars, about="Stanford Cars, old and new layout", layout=_cars.LAYOUT),
    "aircraft": DatasetKind(
        _aircraft.aircraft,
        about="FGVC-Aircraft 2013b; 512, crop 448",
        layout=_aircraft.LAYOUT,
        options={"level": one_of("level", *_aircraft.LEVELS)},
    ),
    "dtd": DatasetKind(
        _dtd.dtd,
        about="Describable Textures, train and val joined",
        layout=_dtd.LAYOUT,
        options={"split": whole(1, 10)},
    ),
    "folder": DatasetKind(
        _folder.folder, about=f"your images, a folder a class{_CUT}", layout=_folder.LAYOUT, options=_SPLIT
    ),
    "csv": DatasetKind(_csv.csv, about=f"your images, a table{_CUT}", layout=_csv.LAYOUT, options=_SPLIT),
    "textures": DatasetKind(
        _textures.textures,
        about="patches of photographs that come with scikit-image",
        layout="built in: pip install 'bcnn[demo]'",
        options={"per_class": whole(1), "seed": whole(0)},
        built_in=True,
    ),
}
