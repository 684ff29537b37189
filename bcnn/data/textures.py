"""Textures among clutter, built in: patches of the photographs in scikit-image's wheel; nothing is downloaded.

Seven photographs of something that repeats (bricks, grass, gravel, stained tissue, coins, handwriting, print), each as
it is and as its negative, are 14 classes. A patch is cut at any angle and scale and shows its class on 20 to 50 % of
its area, on one side of a line; the rest is clutter from five other photographs. Grey, mean and contrast are made equal
and then drawn at random, and there is noise: first-order statistics of the pixels say little about the class. Training
patches come from the left half of every photograph, test patches from the right half, clutter as well: no pixel is in
both.

Difficulty was set by the share of the area, on seed 0, with AlexNet at 128 pixels and a linear SVM: without clutter
average pooling is as good as second-order pooling; the less of the class there is, the further the second order is
ahead. `make demo` measures where they stand: a demonstration, no evidence for one or the other.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .contract import SPLITS, TRAIN, Dataset, Sample

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray
    from PIL.Image import Image

PHOTOGRAPHS = ("brick", "coins", "grass", "gravel", "ihc", "page", "text")
CLUTTER = ("astronaut", "camera", "chelsea", "coffee", "motorcycle_left")  # PNG, too: every decoder agrees
SIZE = 128  # side of a patch
SIDE, CLUTTER_SIDE = (60.0, 90.0), (60.0, 110.0)  # what a patch spans in its photograph, pixels
AREA = (0.2, 0.5)  # of the patch that shows its class
MEAN, CONTRAST = (100.0, 155.0), (15.0, 45.0)  # grey levels, contrast as standard deviation
NOISE = 0.85  # at most, uniform, relative to the contrast


@dataclass(frozen=True)
class Patch:
    """One picture, made when it is called for: the same for the same numbers."""

    photograph: str
    negative: bool
    split: str
    numbers: tuple[int, ...]  # the seed of everything that is drawn

    def __call__(self) -> Image:
        """Make the patch in RGB; all three channels are the same."""
        import numpy
        from PIL.Image import fromarray

        rng = numpy.random.default_rng(self.numbers)
        pixels = cut_out(self.photograph, self.split, rng, SIDE) * (-1 if self.negative else 1)
        other = CLUTTER[int(rng.random() * len(CLUTTER))]
        clutter = cut_out(other, self.split, rng, CLUTTER_SIDE) * (-1 if rng.random() < 0.5 else 1)
        pixels = numpy.where(_side_of_a_line(rng), pixels, clutter)
        contrast, mean = _between(rng, CONTRAST), _between(rng, MEAN)
        noise = NOISE * rng.random() * (2 * rng.random((SIZE, SIZE)) - 1)
        grey = (mean + contrast * (pixels + noise)).round().clip(0, 255).astype(numpy.uint8)
        return fromarray(grey).convert("RGB")


def textures(per_class: int = 40, seed: int = 0) -> Dataset:
    """So many patches for training and so many for the test in each of the 14 classes.

    Raises: ImportError if scikit-image is not here.
    """
    _folder()
    kinds = [(name, negative) for name in PHOTOGRAPHS for negative in (False, True)]
    classes = tuple(f"{name}_negative" if negative else name for name, negative in kinds)
    samples = tuple(
        Sample(f"{split}/{classes[label]}/{i:04d}", label, split, Patch(name, negative, split, (seed, label, side, i)))
        for side, split in enumerate(SPLITS)
        for label, (name, negative) in enumerate(kinds)
        for i in range(per_class)
    )
    return Dataset("textures", classes, samples)


def half_of(photograph: str, split: str) -> tuple[int, int, int, int]:
    """The box from which a split may take its patches: left, upper, right, lower."""
    width, height = _photograph(photograph).size
    middle = width // 2
    return (0, 0, middle, height) if split == TRAIN else (middle, 0, width, height)


def cut_out(photograph: str, split: str, rng: Generator, sides: tuple[float, float]) -> NDArray[Any]:
    """A square at random place, angle and scale, of mean 0 and deviation 1, shape (SIZE, SIZE)."""
    import numpy
    from PIL.Image import Resampling, Transform

    half = _photograph(photograph).crop(half_of(photograph, split))  # the other half is out of reach
    side = sides[0] * (sides[1] / sides[0]) ** rng.random()
    angle = 2 * math.pi * rng.random()
    reach = side * (abs(math.cos(angle)) + abs(math.sin(angle))) / 2
    x, y = (_between(rng, (reach, length - reach)) for length in half.size)
    a, b = side / SIZE * math.cos(angle), side / SIZE * math.sin(angle)
    middle = SIZE / 2
    matrix = (a, -b, x - (a - b) * middle, b, a, y - (b + a) * middle)
    cut = half.transform((SIZE, SIZE), Transform.AFFINE, matrix, Resampling.BICUBIC)
    pixels = numpy.asarray(cut).astype(float)
    even: NDArray[Any] = (pixels - pixels.mean()) / max(float(pixels.std()), 1.0)
    return even


def _side_of_a_line(rng: Generator) -> NDArray[Any]:
    """A mask that covers AREA of the patch, at any angle."""
    import numpy

    angle, area = 2 * math.pi * rng.random(), _between(rng, AREA)
    rows, columns = numpy.mgrid[:SIZE, :SIZE]
    distance = math.cos(angle) * columns + math.sin(angle) * rows
    mask: NDArray[Any] = distance > numpy.quantile(distance, 1 - area)
    return mask


def _between(rng: Generator, bounds: tuple[float, float]) -> float:
    return bounds[0] + (bounds[1] - bounds[0]) * rng.random()


@functools.cache
def _photograph(name: str) -> Image:
    import PIL.Image

    with PIL.Image.open(_folder() / f"{name}.png") as image:
        grey: Image = image.convert("L")
        return grey


def _folder() -> Path:
    """Where scikit-image keeps its photographs; it is not imported, so that it cannot download."""
    found = find_spec("skimage")
    if found is None or found.origin is None:
        raise ImportError("textures: expected scikit-image for its photographs, got none; pip install 'bcnn[demo]'.")
    folder = Path(found.origin).parent / "data"
    missing = [name for name in (*PHOTOGRAPHS, *CLUTTER) if not (folder / f"{name}.png").is_file()]
    if missing:
        raise ImportError(
            f"textures: expected {missing[0]}.png in scikit-image's wheel, got none; pip install 'bcnn[demo]' again."
        )
    return folder
