"""A picture that explains: the photograph, the regions that decided, and training photographs for and against it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from ..data.contract import Sample
from ..data.preprocess import Preprocessing
from ..metrics import Prediction
from .classes import shortened, thumbnail
from .overlay import overlay

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE = 480  # pixels of the photograph's longer side in the picture
ROW = 2.9  # inches: a square photograph, two lines above it, and the title of the row


@dataclass(frozen=True)
class Speaker:
    """A training photograph and its share of the score."""

    name: str
    label: str  # its class
    share: float
    sample: Sample | None  # None where the photograph is gone


@dataclass(frozen=True)
class Explanation:
    """Why a class got its score."""

    prediction: Prediction
    name: str  # of the class that is explained
    score: float
    shares: numpy.ndarray  # of regions, shape (h, w)
    speaks_for: tuple[Speaker, ...]
    against: tuple[Speaker, ...]
    why_no_speakers: str = ""  # in words, where training photographs cannot be shown


def draw(explanation: Explanation, photograph: Image, preprocessing: Preprocessing, path: Path) -> None:
    """Draw the explanation into a PNG file."""
    from matplotlib.figure import Figure

    photograph = photograph.copy()
    photograph.thumbnail((SIDE, SIDE))
    rows = {word: row for word, row in (("for", explanation.speaks_for), ("against", explanation.against)) if row}
    height = 4.6 + ROW * len(rows) + (0.4 if explanation.why_no_speakers else 0)
    figure = Figure(figsize=(10.5, height), layout="constrained")
    parts = figure.subfigures(1 + len(rows), 1, height_ratios=[4.6, *[ROW] * len(rows)], squeeze=False)[:, 0]
    _photographs(parts[0], explanation, photograph, overlay(photograph, explanation.shares, preprocessing))
    for part, (word, row) in zip(parts[1:], rows.items(), strict=True):
        _speakers(part, row, f"training photographs that speak {word} it most, with their shares of the score")
    if explanation.why_no_speakers:
        figure.supxlabel(textwrap.fill(explanation.why_no_speakers, 130), fontsize=8)
    figure.savefig(path, dpi=100, format="png")


def _photographs(part: Any, explanation: Explanation, photograph: Image, coloured: Image) -> None:
    """The photograph with what was predicted, and its regions."""
    said = "\n".join(f"{shortened(name, 34)}: {100 * share:.1f} %" for name, share in explanation.prediction.top[:3])
    title = f"{shortened(explanation.name, 34)}: score {explanation.score:+.2f}\norange speaks for it, blue against it"
    for axes, picture, words in zip(part.subplots(1, 2), (photograph, coloured), (said, title), strict=True):
        axes.imshow(numpy.asarray(picture))
        axes.set_title(words, fontsize=9)
        axes.axis("off")


def _speakers(part: Any, row: Sequence[Speaker], title: str) -> None:
    part.suptitle(title, fontsize=9)
    for axes, speaker in zip(part.subplots(1, max(5, len(row))), [*row, *[None] * (5 - len(row))], strict=False):
        axes.axis("off")
        if speaker is None:
            continue
        picture = None if speaker.sample is None else thumbnail(speaker.sample)
        if picture is None:
            axes.text(0.5, 0.5, "the photograph\nis gone", ha="center", va="center", fontsize=8)
        else:
            axes.imshow(_square(picture))
        axes.set_title(f"{shortened(speaker.label, 28)}\n{speaker.share:+.3f}", fontsize=8)


def _square(picture: numpy.ndarray) -> numpy.ndarray:
    """The picture on a white square, at its top: so all of a row begin at the same height, below their titles."""
    height, width = picture.shape[:2]
    side = max(height, width)
    square = numpy.full((side, side, 3), 255, dtype=numpy.uint8)
    left = (side - width) // 2
    square[:height, left : left + width] = picture
    return square
