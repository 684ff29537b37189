"""Presets side by side on the same test images: accuracy with interval, table and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..classify.paired import paired_p
from ..metrics import Prediction, RunMetrics
from .tables import Column, Layout, Record, interval, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    """One preset, and how much better it is than the preset before it."""

    dataset: str
    backbone: str
    image_size: int
    preset: str
    accuracy: float
    low: float
    high: float
    top5_accuracy: float | None
    num_test: int
    num_features: int
    describe_s: float
    fit_s: float
    versions: Mapping[str, str]
    against: str = ""
    difference: float | None = None
    p: float | None = None

    def record(self) -> dict[str, Any]:
        """The row as a line of comparison.csv."""
        content = asdict(self)
        versions = content.pop("versions")
        return {**content, **versions}


def _row(own: RunMetrics) -> Row:
    assert own.test is not None
    return Row(
        own.dataset, own.backbone, own.image_size, own.preset, own.test.accuracy, *own.test.interval95,
        own.test.top5_accuracy, own.test.num_test, own.num_features, own.time_s["describe"], own.time_s["fit"],
        own.versions,
    )  # fmt: skip


def records_of(metrics: Sequence[RunMetrics], guesses: Sequence[Sequence[Prediction]]) -> list[dict[str, Any]]:
    """One record per preset, each compared with the one before it."""
    rows = [_row(own) for own in metrics]
    right = [[guess.is_right for guess in some] for some in guesses]
    for i in range(1, len(rows)):
        before = rows[i - 1]
        difference = rows[i].accuracy - before.accuracy
        p = paired_p(right[i], right[i - 1])
        rows[i] = replace(rows[i], against=before.preset, difference=difference, p=p)
    return [row.record() for row in rows]


def _plot(records: Sequence[Record]) -> Figure:
    """Accuracies with their intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6 * len(records) + 2, 4), layout="constrained")
    axes = figure.subplots()
    heights = [100 * float(record["accuracy"]) for record in records]
    below = [height - 100 * float(record["low"]) for height, record in zip(heights, records, strict=True)]
    above = [100 * float(record["high"]) - height for height, record in zip(heights, records, strict=True)]
    bars = axes.bar([str(record["preset"]) for record in records], heights, yerr=[below, above], capsize=6, width=0.6)
    axes.bar_label(bars, fmt="%.1f", label_type="center", color="white")
    axes.set_ylabel("accuracy %, 95 % interval")
    axes.set_ylim(0, 105)
    axes.set_title(f"{records[0]['dataset']}, {records[0]['backbone']} at {records[0]['image_size']} px", fontsize=10)
    return figure


LAYOUT = Layout(
    columns=(
        Column("preset", "preset"),
        Column("accuracy", "accuracy %", lambda record: percent(record["accuracy"])),
        Column("low", "95 % interval", lambda record: interval(record["low"], record["high"])),
        Column("against", "against"),
        Column("difference", "difference", lambda record: percent(record["difference"], sign="+")),
        Column("p", "p", ".2g"),
        Column("top5_accuracy", "top-5 %", lambda record: percent(record["top5_accuracy"])),
        Column("num_features", "features"),
        Column("describe_s", "describe s", ".0f"),
        Column("fit_s", "fit s", ".1f"),
    ),
    note="Intervals: Wilson. Difference in points of accuracy to the preset named, on the same images; p: exact "
    "McNemar test. Describing all images took one pass through the network for all presets; fit: classifier and "
    "calibration.",
    title=lambda record: (
        f"{record['dataset']}, {record['backbone']} at {record['image_size']} px, {record['num_test']} test images"
    ),
    plot=_plot,
)


def write(metrics: Sequence[RunMetrics], guesses: Sequence[Sequence[Prediction]], out: Path) -> None:
    """Write comparison.csv, .md and .png, unless there are no test images."""
    if all(own.test is not None for own in metrics):
        LAYOUT.write(records_of(metrics, guesses), out / "comparison")
