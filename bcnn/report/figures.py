"""What the plots share: panels of bars, and files that are written whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..files import written_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Panel(NamedTuple):
    """Bars side by side; the first is what the others are compared with."""

    title: str
    names: Sequence[str]
    values: Sequence[float]
    label: str  # of the axis


def bar_figure(panels: Sequence[Panel]) -> Figure:
    """One panel below the other; a title that several share stands above the first of them."""
    from matplotlib.figure import Figure

    heights = [len(panel.names) for panel in panels]
    figure = Figure(figsize=(9, 0.9 + 0.42 * sum(heights) + 0.7 * len(panels)), layout="constrained")
    rows = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    said = ""
    for axes, panel in zip(rows, panels, strict=True):
        bars = axes.barh(panel.names, panel.values, color=["#999999", *["#1f77b4"] * (len(panel.names) - 1)])
        axes.bar_label(bars, [f"{value:.3g}" for value in panel.values], padding=3, fontsize=8)
        frame(axes, max(panel.values), panel.label, panel.title if panel.title != said else "")
        said = panel.title
    return figure


def frame(axes: Any, largest: float, label: str, title: str) -> None:
    """The looks of horizontal bars that are read from the top, with room for the number behind the longest."""
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * largest)
    axes.set_xlabel(label, fontsize=9)
    axes.set_title(title, fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write the figure to a file, completely or not at all."""
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=100)
