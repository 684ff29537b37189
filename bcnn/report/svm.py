"""The results of `bcnn bench svm` as a table in the terminal, as Markdown, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import written_whole
from . import tables
from .tables import Layout, Record, group_of

HEADER = ("case", "all classes, s", "slowest, s", "ratio", "goal", "MB", "ratio", "goal", "decision values off by")
NOTE = (
    "Features are read from a file, each case in a process of its own; MB: the most that was resident. Times are of "
    "the fastest round; ratios to the first line, whose time is scaled to all classes from the problems it solved, its "
    "preparations counted once; decision values against the first line's, which stops at its tolerance."
)


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    return [
        str(record["case"]),
        f"{float(record['total_s']):.1f}",
        f"{float(record['slowest_s']):.1f}",
        _ratio(record["ratio"]),
        str(record["time_goal"]),
        f"{float(record['memory_mb']):.0f}",
        _ratio(record["memory_ratio"]),
        str(record["memory_goal"]),
        _known(record["difference"]),
    ]


LAYOUT = Layout(HEADER, cells, NOTE)
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
    """Time for all classes and memory, a panel each."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 1, figsize=(9, 1.4 + 0.7 * len(records)), layout="constrained")
    names = [str(record["case"]) for record in records]
    for panel, column, label in zip(axes, ("total_s", "memory_mb"), ("s, all classes", "MB, resident"), strict=True):
        values = [float(record[column]) for record in records]
        bars = panel.barh(names, values, color=["#999999", *["#1f77b4"] * (len(records) - 1)])
        panel.bar_label(bars, [f"{value:.3g}" for value in values], padding=3, fontsize=8)
        panel.invert_yaxis()
        panel.set_xlim(0, 1.15 * max(values))
        panel.set_xlabel(label, fontsize=9)
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    axes[0].set_title(group_of(records[0]), fontsize=9, loc="left")
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=80)
    plt.close(figure)


def _ratio(value: Any) -> str:
    number = float(value)
    return f"1/{1 / number:.1f}" if number < 1 else f"{number:.1f}"


def _known(value: Any) -> str:
    """As text; empty where it was not measured, which a file has as an empty field."""
    return "" if value in (None, "") else tables.error(value)
