"""The results of `bcnn bench extract` as a table in the terminal, as Markdown, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import written_whole
from .tables import Layout, Record

HEADER = ("case", "images/s", "of the bare network", "goal", "MB")
NOTE = "Medians; shares from the same rounds; memory is the most that was resident."


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    return [
        str(record["case"]),
        _number(record["images_per_s"], ".1f"),
        _number(record["share"], ".2f"),
        str(record["goal"]),
        _number(record["memory_mb"], ".0f"),
    ]


def _number(value: Any, form: str) -> str:
    return "" if value in ("", None) else format(float(value), form)


LAYOUT = Layout(HEADER, cells, NOTE)
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
    """Memory against the number of images."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.5), layout="constrained")
    axes = figure.subplots()
    points = [
        (int(str(r["case"]).split()[0]), float(r["memory_mb"])) for r in records if r["memory_mb"] not in ("", None)
    ]
    axes.plot(*zip(*points, strict=True), marker="o")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("images")
    axes.set_ylabel("MB resident")
    axes.set_title("memory of bcnn extract", fontsize=10)
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=120)
