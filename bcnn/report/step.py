"""The results of `bcnn bench step` as a table and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import figures
from .tables import Column, Layout, Record, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The parts of a step in the order in which it comes to them, and their colours.
PARTS = {
    "waiting": ("wait_ms", "#bbbbbb"),
    "network": ("network_ms", "#1f77b4"),
    "pooling": ("pooling_ms", "#2ca02c"),
    "matrix function": ("matrix_ms", "#d62728"),
    "classifier": ("classifier_ms", "#9467bd"),
    "update": ("update_ms", "#ff7f0e"),
}


def _plot(records: Sequence[Record]) -> Figure:
    """A bar per head, of the parts of its step; the share of the matrix function at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.6 + 0.42 * len(records)), layout="constrained")
    axes = figure.subplots()
    names = [str(record["case"]) for record in records]
    ends = [0.0] * len(records)
    for label, (column, colour) in PARTS.items():
        widths = [max(0.0, float(record[column])) for record in records]
        bars = axes.barh(names, widths, left=ends, color=colour, label=label)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.bar_label(bars, [f"{percent(record['share'])} %" for record in records], padding=3, fontsize=8)
    label = "ms per image; % of the step in the matrix function"
    figures.frame(axes, max(ends), label, LAYOUT.title(records[0]))
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    return figure


LAYOUT = Layout(
    columns=(
        Column("case", "head"),
        Column("data_alone_ms", "data alone", ".2f"),
        *(Column(key, title, ".2f") for title, (key, _) in PARTS.items()),
        Column("step_ms", "step", ".2f"),
        Column("share", "share, %", lambda record: percent(record["share"], record["share_spread"])),
    ),
    note="Milliseconds an image, medians over the rounds, forward and backward; the step is the sum of its parts. "
    "Data alone: from JPEG files to a batch with nothing else running, no part of the step; waiting: what is left of "
    "it where threads decode while the network works. Pooling: with the normalizations of entries, as in bcnn in the "
    "same rounds; matrix function: what its head takes longer than that of bcnn. Classifier: with the loss. Update: "
    "length of the gradient, momentum, weight decay. Share: of the matrix function in the step, ± half its range over "
    "the rounds.",
    plot=_plot,
)
