"""The results of `bcnn bench pooling` as a table in the terminal, as Markdown, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import written_whole
from . import tables
from .tables import Layout, Record, group_of

HEADER = ("case", "ms", "ratio", "goal", "error", "gradient error", "descriptor cosine")
NOTE = (
    "Times an image, medians; ratios to the first line of each table, in the same rounds; errors relative to float64 "
    "and cosines to float32, the worst of the batch."
)


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    return [
        str(record["case"]),
        f"{float(record['time_ms']):.2f}",
        f"{float(record['ratio']):.3f}",
        str(record["goal"]),
        _known(record["root_error"], tables.error),
        _known(record["gradient_error"], tables.error),
        _known(record["cosine"], lambda value: f"{float(value):.5f}"),
    ]


LAYOUT = Layout(HEADER, cells, NOTE)
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
    """Time of every case against the first of its group, a panel a group."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    groups = tables.groups(records, group_of)
    figure, axes = plt.subplots(
        len(groups), 1, figsize=(9, 0.9 + 0.42 * len(records) + 0.5 * len(groups)), squeeze=False,
        height_ratios=[len(group) for group in groups], layout="constrained",
    )  # fmt: skip
    for panel, group in zip(axes.flat, groups, strict=True):
        names = [str(record["case"]) for record in group]
        ratios = [float(record["ratio"]) for record in group]
        bars = panel.barh(names, ratios, color=["#999999", *["#1f77b4"] * (len(group) - 1)])
        panel.bar_label(bars, [f"{ratio:.3f}" for ratio in ratios], padding=3, fontsize=8)
        panel.invert_yaxis()
        panel.set_title(group_of(group[0]), fontsize=9, loc="left")
        panel.set_xlim(0, 1.12 * max(ratios))
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    axes.flat[-1].set_xlabel("time over the first line's", fontsize=9)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=80)
    plt.close(figure)


def _known(value: Any, show: Any) -> str:
    """As text; empty where it was not measured, which a file has as an empty field."""
    return "" if value in (None, "") else str(show(value))
