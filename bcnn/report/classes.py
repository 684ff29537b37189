"""Pictures of how a classifier does: the confusion matrix, and its worst mistakes as a sheet of photographs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from ..data.contract import Sample, shown
from ..metrics import Prediction
from . import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL.Image import Image

    Mark = Callable[[Image], Image]


def plot_confusion(confusion: numpy.ndarray, classes: Sequence[str], path: Path) -> None:
    """Draw the confusion matrix into a file."""
    figures.save(confusion_figure(confusion, classes), path)


def confusion_figure(confusion: numpy.ndarray, classes: Sequence[str]) -> Figure:
    """Rows are true classes, columns predicted ones; each row adds up to 1."""
    from matplotlib.figure import Figure

    k = len(classes)
    side = min(max(4.0, 0.2 * k), 24.0)
    figure = Figure(figsize=(side + 2, side + 1), layout="constrained")
    axes = figure.subplots()
    shares = confusion / numpy.maximum(confusion.sum(1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, fraction=0.04, label="share of the true class")
    if k <= 100:
        labels = [shortened(name, 24) for name in classes]
        size = 8 if k <= 50 else 6
        axes.set_xticks(range(k), labels, rotation=90, fontsize=size)
        axes.set_yticks(range(k), labels, fontsize=size)
    if k <= 20:
        for row, column in numpy.argwhere(confusion > 0):
            colour = "black" if shares[row, column] > 0.6 else "white"
            axes.text(column, row, str(int(confusion[row, column])), ha="center", va="center", color=colour, fontsize=8)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    return figure


def plot_mistakes(
    guesses: Sequence[Prediction],
    samples: Mapping[str, Sample],
    path: Path,
    *,
    most: int = 20,
    marks: Callable[[Sequence[Prediction]], Mapping[str, Mark]] | None = None,
) -> None:
    """The wrong predictions that were surest of themselves, each with what it is and what it was taken for.

    Args:
        guesses: all predictions.
        samples: the photographs by name.
        path: where to.
        most: how many are shown.
        marks: from predictions to what shows on each photograph, by name, which regions decided; None: nothing does.
    """
    from matplotlib.figure import Figure

    wrong = [guess for guess in guesses if not guess.is_right]
    worst = sorted(wrong, key=lambda guess: -guess.top[0][1])[:most]
    marked = marks(worst) if marks and worst else {}
    columns = 3 if marked else 5
    rows = max(1, -(-len(worst) // columns))
    figure = Figure(figsize=(15, (2.6 if marked else 3.3) * rows + 0.5), layout="constrained")
    figure.suptitle(f"{len(wrong)} of {len(guesses)} wrong; the surest of them" if wrong else "no mistakes")
    # Without ticks from the start: laying out those that nobody sees takes most of the time.
    for axes in figure.subplots(rows, columns, squeeze=False, subplot_kw={"xticks": [], "yticks": []}).flat:
        axes.axis("off")
    for axes, guess in zip(figure.axes, worst, strict=False):
        picture = thumbnail(samples[guess.name], marked.get(guess.name))
        if picture is not None:
            axes.imshow(picture)
        name, share = guess.top[0]
        axes.set_title(
            f"is {shortened(guess.truth or '', 28)}\ntaken for {shortened(name, 28)}, {100 * share:.0f} %", fontsize=8
        )
    figures.save(figure, path)


def thumbnail(sample: Sample, mark: Callable[[Image], Image] | None = None) -> Any:
    """A small copy of a photograph as pixels, marked where that is wanted; None where it cannot be read."""
    try:
        image = sample.open()
    except OSError:
        return None
    image.thumbnail((280, 280))
    return numpy.asarray(mark(image) if mark else image)


def shortened(name: str, most: int) -> str:
    """A name for the title of a plot, with at most so many letters."""
    name = shown(name).replace("$", r"\$")  # a dollar would start a formula
    return name if len(name) <= most else f"{name[: most - 3]}..."
