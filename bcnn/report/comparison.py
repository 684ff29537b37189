"""Presets side by side on the same test images: accuracy with interval, table and plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..classify.paired import paired_p
from ..metrics import Prediction, RunMetrics
from .tables import Column, Layout, Record, interval, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def records_of(metrics: Sequence[RunMetrics], guesses: Sequence[Sequence[Prediction]]) -> list[dict[str, Any]]:
    """One record per preset, each compared with the one before it: a line of comparison.csv."""
    right = [[guess.is_right for guess in some] for some in guesses]
    records: list[dict[str, Any]] = []
    for i, own in enumerate(metrics):
        assert own.test is not None
        low, high = own.test.interval95
        record = {
            "dataset": own.dataset, "backbone": own.backbone, "image_size": own.image_size, "preset": own.preset,
            "accuracy": own.test.accuracy, "low": low, "high": high, "top5_accuracy": own.test.top5_accuracy,
            "num_test": own.test.num_test, "descriptor_length": own.descriptor_length,
            "describe_s": own.time_s["describe"], "fit_s": own.time_s["fit"],
            "against": "", "difference": None, "p": None, **own.versions,
        }  # fmt: skip
        if records:
            difference = own.test.accuracy - records[-1]["accuracy"]
            p = paired_p(right[i], right[i - 1])
            record |= {"against": records[-1]["preset"], "difference": difference, "p": p}
        records.append(record)
    return records


def _plot(records: Sequence[Record]) -> Figure:
    """Draw the accuracies with their intervals."""
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
        Column("descriptor_length", "numbers"),
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
