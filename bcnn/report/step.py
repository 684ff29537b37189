"""The results of `bcnn bench step` as a table in the terminal, as Markdown, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..files import written_whole
from .tables import Layout, Record, group_of

# The parts of a step in the order in which it comes to them, and their colours.
PARTS = {
    "waiting": ("wait_ms", "#bbbbbb"),
    "network": ("network_ms", "#1f77b4"),
    "pooling": ("pooling_ms", "#2ca02c"),
    "matrix function": ("matrix_ms", "#d62728"),
    "classifier": ("classifier_ms", "#9467bd"),
    "update": ("update_ms", "#ff7f0e"),
}
HEADER = ("head", "data alone", *PARTS, "step", "share, %")
NOTE = (
    "Milliseconds an image, medians over the rounds, forward and backward; the step is the sum of its parts. "
    "Data alone: from JPEG files to a batch with nothing else running, no part of the step; waiting: what is left of "
    "it where threads decode while the network works. Pooling: with the normalizations of entries, as in bcnn in the "
    "same rounds; matrix function: what its head takes longer than that of bcnn. Classifier: with the loss. Update: "
    "length of the gradient, momentum, weight decay. Share: of the matrix function in the step, ± half its range over "
    "the rounds."
)


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    columns = ("data_alone_ms", *(column for column, _ in PARTS.values()), "step_ms")
    return [
        str(record["case"]),
        *(f"{float(record[column]):.2f}" for column in columns),
        f"{100 * float(record['share']):.1f} ± {100 * float(record['share_spread']):.1f}",
    ]


LAYOUT = Layout(HEADER, cells, NOTE)
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
    """A bar a head, of the parts of its step; the share of the matrix function at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.6 + 0.42 * len(records)), layout="constrained")
    axes = figure.subplots()
    names = [str(record["case"]) for record in records]
    ends = [0.0] * len(records)
    for label, (column, colour) in PARTS.items():
        widths = [max(0.0, float(record[column])) for record in records]
        bars = axes.barh(names, widths, left=ends, color=colour, label=label)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.bar_label(bars, [f"{100 * float(record['share']):.1f} %" for record in records], padding=3, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.12 * max(ends))
    axes.set_xlabel("ms an image; % of the step in the matrix function", fontsize=9)
    axes.set_title(group_of(records[0]), fontsize=9, loc="left")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=80)
