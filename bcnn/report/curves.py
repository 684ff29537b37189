"""How a training went: loss and accuracy by epoch, the chosen epoch marked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..metrics import Epoch
from . import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(history: Sequence[Epoch], best_epoch: int, path: Path, *, selected_on: str) -> None:
    """Draw the curves into a file."""
    figures.save(curves_figure(history, best_epoch, selected_on=selected_on), path)


def curves_figure(history: Sequence[Epoch], best_epoch: int, *, selected_on: str) -> Figure:
    """A figure with one panel for the loss and one for the accuracy."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    held_out = "test" if selected_on == "test" else "validation"
    for axes, what, scale in ((left, "loss", 1.0), (right, "accuracy", 100.0)):
        for prefix, name in (("train", "training"), ("val", held_out)):
            values = {one.epoch: getattr(one, f"{prefix}_{what}") for one in history}
            points = [(epoch, scale * value) for epoch, value in values.items() if value is not None]
            if points:
                axes.plot(*zip(*points, strict=True), marker=".", label=name)
        axes.axvline(best_epoch, color="grey", linestyle=":", label=f"chosen: epoch {best_epoch}")
        axes.set_xlabel("epoch")
        axes.set_ylabel(what if scale == 1 else f"{what} %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    skipped = sum(one.num_skipped for one in history)
    figure.suptitle(
        f"epoch chosen on: {selected_on.upper() if selected_on == 'test' else selected_on}"
        + (f"; {skipped} steps skipped, not finite" if skipped else ""),
        fontsize=10,
    )
    return figure
