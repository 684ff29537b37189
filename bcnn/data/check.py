"""Is a dataset what it seems: every image decoded, counted and compared across the splits.

Copies are found on grey thumbnails of 32 x 32: the differences of neighbours, across and down, as one vector of length
1; similarity is the cosine, of a picture and of its mirror image. Tried on 2,734 photographs of CUB-200-2011:

- copies saved again (JPEG at quality 30), halved, shrunk to a third or to 64 x 64, mirrored, brightened by a fifth:
  at least 0.96, in the median 0.998;
- two different photographs, 1.9 million pairs across the official split: at most 0.70 (pictures in frames
  alike; two shots of one bird on one branch: 0.68), one pair in ten thousand above 0.32; one pair is a true copy;
- 2 % cut off at every edge: 0.83 in the median; 5 %: 0.37, not to be told from other photographs.

So 0.9 is the threshold: nothing else was found by it there, and copies that are cropped are mostly missed. Pictures
without any structure are compared only pixel by pixel.
"""

from __future__ import annotations

import hashlib
import os
import statistics
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..progress import Progress, silent
from .contract import SPLITS, TEST, TRAIN, Dataset, Sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

THUMBNAIL = 32
THRESHOLD = 0.9
BLOCK = 1024  # images compared at a time: 2 x 8 MB of descriptors and 4 MB of similarities
FLAT = 0.5  # grey levels between neighbours, root mean square, below which there is no structure


@dataclass(frozen=True)
class Broken:
    """An image that cannot be read, and why."""

    name: str
    split: str
    reason: str


@dataclass(frozen=True)
class Copy:
    """A test image and the training image that is most like it."""

    test: str
    train: str
    similarity: float
    exact: bool  # the same pixels
    mirrored: bool
    same_class: bool


@dataclass(frozen=True)
class Count:
    """Images of one split; per class the smallest, middle and largest number, classes without any included."""

    images: int
    classes: int
    smallest: int
    median: float
    largest: int


@dataclass(frozen=True)
class CheckReport:
    """What `bcnn datasets check` has found."""

    dataset: str
    num_classes: int
    counts: dict[str, Count]  # by split
    smallest_size: tuple[int, int] | None  # width and height of the image with the fewest pixels
    largest_size: tuple[int, int] | None
    ignored: tuple[str, ...]
    broken: tuple[Broken, ...]
    copies: tuple[Copy, ...]  # most similar first; at most one for a test image

    @property
    def clean(self) -> bool:
        """Whether no image is broken and none is in both splits."""
        return not self.broken and not self.copies


@dataclass(frozen=True)
class _Seen:
    """What is kept of an image after it was decoded."""

    size: tuple[int, int]
    digest: bytes
    thumbnail: NDArray[Any]


def check(dataset: Dataset, progress: Progress = silent) -> CheckReport:
    """Decode every image in a few threads, count, and look for test images that are in the training split, too."""
    seen: list[tuple[Sample, _Seen]] = []
    broken: list[Broken] = []
    total = len(dataset.samples)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        try:
            for done, (sample, found) in enumerate(zip(dataset.samples, pool.map(_look, dataset.samples), strict=True)):
                if isinstance(found, str):
                    broken.append(Broken(sample.name, sample.split, found))
                else:
                    seen.append((sample, found))
                progress("images", done + 1, total)
        except BaseException:  # Ctrl-C: what has not begun is left
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    sizes = sorted((found.size for _, found in seen), key=lambda size: size[0] * size[1])
    return CheckReport(
        dataset=dataset.name,
        num_classes=len(dataset.classes),
        counts={split: _count(dataset, split) for split in SPLITS},
        smallest_size=sizes[0] if sizes else None,
        largest_size=sizes[-1] if sizes else None,
        ignored=dataset.ignored,
        broken=tuple(broken),
        copies=_copies(seen),
    )


def _look(sample: Sample) -> _Seen | str:
    """The thumbnail and the rest, or why there is none."""
    import numpy
    from PIL.Image import Resampling

    try:
        image = sample.open()
    except OSError as error:
        return str(error)
    digest = hashlib.sha256(f"{image.size}".encode() + image.tobytes()).digest()
    small = image.convert("L").resize((THUMBNAIL, THUMBNAIL), Resampling.BILINEAR)
    return _Seen(image.size, digest, numpy.asarray(small))


def _count(dataset: Dataset, split: str) -> Count:
    labels = Counter(sample.label for sample in dataset.of(split))
    numbers = [labels[label] for label in range(len(dataset.classes))]
    return Count(sum(numbers), len(labels), min(numbers), statistics.median(numbers), max(numbers))


def _copies(seen: Sequence[tuple[Sample, _Seen]]) -> tuple[Copy, ...]:
    train, test = ([pair for pair in seen if pair[0].split == split] for split in (TRAIN, TEST))
    first = {}
    for pair in reversed(train):
        first[pair[1].digest] = pair[0]
    found = {}
    for start in range(0, len(test), BLOCK):
        block = test[start : start + BLOCK]
        for (sample, _), best in zip(block, _nearest(block, train), strict=True):
            if best is not None:
                similarity, other, mirrored = best
                same = sample.label == other.label
                found[sample.name] = Copy(sample.name, other.name, similarity, False, mirrored, same)
    for sample, looked in test:
        if looked.digest in first:
            other = first[looked.digest]
            found[sample.name] = Copy(sample.name, other.name, 1.0, True, False, sample.label == other.label)
    return tuple(sorted(found.values(), key=lambda copy: (not copy.exact, -copy.similarity, copy.test)))


def _nearest(
    test: Sequence[tuple[Sample, _Seen]], train: Sequence[tuple[Sample, _Seen]]
) -> list[tuple[float, Sample, bool] | None]:
    """For every test image the training image most like it, if it is as like as THRESHOLD; block by block."""
    import numpy

    thumbnails = numpy.stack([looked.thumbnail for _, looked in test])
    best: list[tuple[float, Sample, bool] | None] = [None] * len(test)
    for mirrored, wanted in ((False, _describe(thumbnails)), (True, _describe(thumbnails[:, :, ::-1]))):
        for start in range(0, len(train), BLOCK):
            block = train[start : start + BLOCK]
            similarity = wanted @ _describe(numpy.stack([looked.thumbnail for _, looked in block])).T
            columns = similarity.argmax(axis=1)
            values = similarity[numpy.arange(len(test)), columns]
            for row in numpy.flatnonzero(values >= THRESHOLD):
                value, held = min(round(float(values[row]), 4), 1.0), best[row]
                if held is None or value > held[0]:
                    best[row] = value, block[columns[row]][0], mirrored
    return best


def _describe(thumbnails: NDArray[Any]) -> NDArray[Any]:
    """Differences of neighbours as vectors of length 1, or 0 where there is no structure; shape (n, 1984)."""
    import numpy

    grey = thumbnails.astype(numpy.float32)
    parts = [numpy.diff(grey, axis=axis).reshape(len(grey), -1) for axis in (2, 1)]
    vectors = numpy.concatenate(parts, axis=1)
    length = numpy.linalg.norm(vectors, axis=1, keepdims=True)
    flat = length < FLAT * vectors.shape[1] ** 0.5
    return numpy.where(flat, 0, vectors / numpy.where(flat, 1, length)).astype(numpy.float32)
