"""A picture of what a trained network takes a class for, or of the texture of a photograph.

Reference: Lin & Maji, CVPR 2016; the mathematics is in `models.invert`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

import numpy
import torch
from torch import Tensor

from ..data.preprocess import open_image
from ..files import check_regular, written_whole
from ..metrics import Prediction
from ..models.bcnn import BCNN
from ..models.invert import SHIFT, class_loss, texture_loss
from ..models.invert import invert as descend
from ..progress import Progress, silent
from .place import check_replaceable
from .predict import Recognizer
from .predictions import predictions_of

WRITTEN_BY = ("Software", "bcnn invert")  # in the file
DEFAULT_PRIOR = {"class": 30.0, "image": 0.3}


@dataclass(frozen=True)
class Picture:
    """A picture that was made, and what the network says of it."""

    path: Path
    first_loss: float  # of the noise: -log p of the class, or the distance of statistics
    loss: float
    said: Prediction


def invert(  # noqa: PLR0913 - the options of the command, each under its own name
    recognizer: Recognizer,
    out: Path,
    *,
    name: str | None = None,
    image: Path | None = None,
    layers: tuple[str, ...] | None = None,
    size: int | None = None,
    prior: float | None = None,
    steps: int = 200,
    seed: int = 0,
    progress: Progress = silent,
) -> Picture:
    """Make a picture and write it to a PNG file.

    Args:
        recognizer: from `open_run`.
        out: the file; a folder: a file in it with a name that tells.
        name: the class; a part of its name will do if no other has it.
        image: or a photograph, whose texture is made anew.
        layers: whose statistics are taken from the photograph; None: see `texture_loss`.
        size: the side in pixels; None: at most 224, since larger pictures take long.
        prior: the weight of smoothness; None: the usual one.
        steps: of L-BFGS.
        seed: of the noise at the start.
        progress: hears of every step.
    """
    model = recognizer.model.requires_grad_(False)
    if (name is None) == (image is None):
        raise ValueError("invert: expected a class or a photograph, got both or neither; give --class or --image.")
    side = min(model.preprocessing.size, 224) if size is None else size
    if name is not None:
        if layers:
            raise ValueError("invert: expected layers with a photograph alone, got a class, which the scorer knows.")
        label = find_class(name, recognizer.classes)
        # A network that is sure would have nothing left to learn from: the descent sees its scores as they are, and
        # the loss that is told is that of its probabilities.
        loss = class_loss(model, model.preprocessing, label, max(1.0, recognizer.temperature))
        told_loss = class_loss(model, model.preprocessing, label, recognizer.temperature)
        told = recognizer.classes[label]
    else:
        assert image is not None
        if not isinstance(model, BCNN):
            raise ValueError("invert: expected one network for a photograph, got an ensemble; name a member's file.")
        photograph = model.preprocessing.at(side)(open_image(image)).to(recognizer.options.device)
        loss = told_loss = texture_loss(model, photograph, layers)
        told = image.stem
    words = re.sub(r"[^\w.-]+", "-", told).strip("-")
    path = out / f"invert_{words}.png" if out.is_dir() else out
    if path.suffix.lower() != ".png":
        raise ValueError(f"invert: expected a file that ends in .png, or a folder, got {out}.")
    check_replaceable(path, "invert", is_ours)
    weight = DEFAULT_PRIOR["image" if name is None else "class"] if prior is None else prior
    made = descend(
        loss,
        side,
        prior=weight,
        steps=steps,
        shift=SHIFT if name else 0.0,
        seed=seed,
        device=recognizer.options.device,
        progress=progress,
    )
    picture = as_bytes(made.pixels)
    write_picture(picture, path)
    with torch.no_grad():
        before, after = (
            0.0 + float(told_loss(own[None].to(recognizer.options.device))) for own in (made.start, made.pixels)
        )
    return Picture(path, before, after, say(recognizer, picture, path))


def find_class(name: str, classes: tuple[str, ...], *, who: str = "invert") -> int:
    """The number of a class by its name, or by a part of it that no other has."""
    if name in classes:
        return classes.index(name)
    found = [i for i, own in enumerate(classes) if name.lower() in own.lower()]
    if len(found) > 1:
        some = ", ".join(classes[i] for i in found[:5])
        raise ValueError(f"{who}: expected the name of one class, got {name!r}, which is in {len(found)}: {some}.")
    if not found:
        close = difflib.get_close_matches(name, classes, n=3, cutoff=0.3) or list(classes[:3])
        raise ValueError(
            f"{who}: expected one of the {len(classes)} classes of the network, such as {', '.join(close)}, got "
            f"{name!r}."
        )
    return found[0]


def as_bytes(pixels: Tensor) -> numpy.ndarray:
    """Pixels (3, H, W) of 0 to 1 as (H, W, 3) bytes."""
    return (pixels * 255).round().byte().movedim(0, -1).numpy()


def write_picture(picture: numpy.ndarray, path: Path) -> None:
    """A PNG file, whole or not at all."""
    from PIL.Image import fromarray
    from PIL.PngImagePlugin import PngInfo

    about = PngInfo()
    about.add_text(*WRITTEN_BY)
    with written_whole(path) as temporary:
        fromarray(picture).save(temporary, format="PNG", pnginfo=about)


def is_ours(path: Path) -> bool:
    """Whether a picture says that it was written by `write_picture`."""
    from PIL.Image import open as open_picture

    check_regular(path)
    with open_picture(path, formats=["PNG"]) as picture:
        return WRITTEN_BY in picture.info.items()


def say(recognizer: Recognizer, picture: numpy.ndarray, path: Path) -> Prediction:
    """What the network says of the picture as it was written, at the size at which it was made."""
    return predictions_of(recognizer.logits([picture]), [str(path)], recognizer.classes)[0]
