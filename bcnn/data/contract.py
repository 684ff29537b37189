"""What a dataset is: classes, and samples with a label and a split; images are opened when they are needed.

A loader is one function from a path and options to a `Dataset`, registered in `DATASETS` beside the options it takes.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .preprocess import check_file, open_image

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..options import Option

TRAIN, TEST = "train", "test"
SPLITS = (TRAIN, TEST)

Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels
BOXES = ("none", "train", "both")  # the option of datasets that have them: which images are cut out by their boxes
MARGIN = 0.1  # what stays around a box on every side, relative to its size


@dataclass(frozen=True)
class Sample:
    """One image: its name within the dataset (unique), its class, its split, and where it comes from."""

    name: str
    label: int
    split: str
    source: Path | Callable[[], Image]  # a file, or what makes the picture
    box: Box | None = None  # around the object, where a dataset says
    cut: bool = False  # whether only the box is shown, with a margin

    def open(self) -> Image:
        """The photograph in RGB; an OSError that names the file if it is broken or not there."""
        image = open_image(self.source) if isinstance(self.source, Path) else self.source()
        return image.crop(around(self.box, image.size)) if self.cut and self.box is not None else image

    def fingerprint(self) -> tuple[int, int, int]:
        """Size, time of change and checksum of the file; (0, 0, 0) for a picture that is made, or no file."""
        if isinstance(self.source, Path):
            with suppress(OSError, ValueError):
                return *self._size_and_time(), _checksum(self.source)
        return 0, 0, 0

    def matches(self, fingerprint: Sequence[int]) -> bool:
        """Whether the file is still the one of that fingerprint; read only if its size is the same and its time not."""
        size_and_time = self._size_and_time()
        if size_and_time == tuple(fingerprint[:2]):
            return True
        return size_and_time[0] == fingerprint[0] and self.fingerprint()[2] == fingerprint[2]

    def _size_and_time(self) -> tuple[int, int]:
        if isinstance(self.source, Path):
            with suppress(OSError, ValueError):
                stat = self.source.stat()
                return stat.st_size, stat.st_mtime_ns
        return 0, 0


def around(box: Box, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels of a box with its margin, at least one, inside of an image of that width and height."""
    left, top, right, bottom = box
    across, down = MARGIN * (right - left), MARGIN * (bottom - top)
    x, y = (min(max(0, round(low)), side - 1) for low, side in zip((left - across, top - down), size, strict=True))
    ends = zip((right + across, bottom + down), size, (x, y), strict=True)
    to_x, to_y = (max(low + 1, min(side, round(high))) for high, side, low in ends)
    return x, y, to_x, to_y


def cut_by_boxes(dataset: Dataset, box: str) -> Dataset:
    """The dataset with its training images, or with all, cut out by their boxes; images without a box stay whole.

    Args:
        dataset: its samples with boxes.
        box: one of `BOXES`.
    """
    splits = {"none": (), "train": (TRAIN,), "both": SPLITS}[box]
    if splits and all(sample.box is None for sample in dataset.samples):
        raise ValueError(f"dataset {dataset.name}, box={box}: expected images with boxes, got none.")
    return replace(dataset, samples=tuple(replace(s, cut=s.split in splits) for s in dataset.samples))


@dataclass(frozen=True)
class Dataset:
    """Classes and samples, in an order that does not depend on the machine."""

    name: str  # the SPEC without its path, such as "cub" or "aircraft,level=family"
    classes: tuple[str, ...]
    samples: tuple[Sample, ...]
    resize_ratio: float = 1.0  # resize to so many times the network's size, then cut out the middle; aircraft: 512/448
    ignored: tuple[str, ...] = ()  # files that are no images by their names, classes without images

    def of(self, split: str) -> tuple[Sample, ...]:
        """The samples of one split."""
        return tuple(sample for sample in self.samples if sample.split == split)


@dataclass(frozen=True)
class DatasetKind:
    """A loader and what can be said about it."""

    load: Callable[..., Dataset]  # load(path, **options); without `path` if it is built in
    about: str
    layout: str  # what lies where, for `bcnn datasets list` and for errors
    options: tuple[Option, ...] = ()
    built_in: bool = False


def split_by_stratum(samples: Sequence[Sample], *, test_share: float, seed: int) -> tuple[Sample, ...]:
    """Cut a test split out of every class by a hash of seed and name: a new file does not move the others.

    A class of one image goes to the training split; any other keeps at least one image on either side.
    """
    if not 0 < test_share < 1:
        raise ValueError(f"dataset: expected test_share between 0 and 1, got {test_share}.")
    by_label: dict[int, list[Sample]] = defaultdict(list)
    for sample in samples:
        by_label[sample.label].append(sample)
    tested = set()
    for members in by_label.values():
        ranked = sorted(members, key=lambda sample: _rank(seed, sample.name))
        wanted = min(max(1, round(test_share * len(members))), len(members) - 1)
        tested |= {sample.name for sample in ranked[:wanted]}
    return tuple(replace(sample, split=TEST if sample.name in tested else TRAIN) for sample in samples)


def shown(name: str) -> str:
    """A name that any terminal can print: bytes that are no text, line ends and the like are written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def cell(name: str) -> str:
    """A name as the cell of a table: on one line, and never a formula, which spreadsheets would compute.

    What begins like a formula gets an apostrophe in front, as spreadsheets themselves write text.
    """
    name = shown(name)
    return f"'{name}" if name.startswith(("=", "+", "-", "@")) else name


def uncell(text: str) -> str:
    """The name in the cell of a table, as `cell` wrote it.

    Example:
        >>> uncell(cell("-5 degrees")), uncell(cell("gull"))
        ('-5 degrees', 'gull')
    """
    return text[1:] if text.startswith(("'=", "'+", "'-", "'@")) else text


def _checksum(path: Path) -> int:
    check_file(path.stat())
    total = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total = zlib.crc32(block, total)
    return total


def _rank(seed: int, name: str) -> str:
    return hashlib.sha256(f"{seed}/{name}".encode(errors="surrogateescape")).hexdigest()
