"""Presets side by side on the same test images: accuracy with interval, table and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..classify.paired import paired_p
from .classes import Guess
from .tables import Column, Layout, Record, interval, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def records_of(metrics: Sequence[Mapping[str, Any]], guesses: Sequence[Sequence[Guess]]) -> list[dict[str, Any]]:
    """One record per preset, each compared with the one before it."""
    records = []
    for i, (own, predicted) in enumerate(zip(metrics, guesses, strict=True)):
        record = {
            "dataset": own["dataset"],
            "backbone": own["backbone"],
            "image_size": own["image_size"],
            "preset": own["preset"],
            "accuracy": own["accuracy"],
            "low": own["interval95"][0],
            "high": own["interval95"][1],
            "top5_accuracy": own["top5_accuracy"],
            "num_test": own["num_test"],
            "num_features": own["num_features"],
            "describe_s": own["time_s"]["describe"],
            "fit_s": own["time_s"]["fit"],
            "against": "",
            "difference": "",
            "p": "",
        }
        if i:
            right, before = ([guess.top[0][0] == guess.truth for guess in some] for some in (predicted, guesses[i - 1]))
            record["against"] = metrics[i - 1]["preset"]
            record["difference"] = own["accuracy"] - metrics[i - 1]["accuracy"]
            record["p"] = paired_p(right, before)
        records.append({**record, **own["versions"]})
    return records


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


def write(metrics: Sequence[Mapping[str, Any]], guesses: Sequence[Sequence[Guess]], out: Path) -> None:
    """comparison.csv, .md and .png; no file where there were no test images."""
    if all(own["accuracy"] is not None for own in metrics):
        LAYOUT.write(records_of(metrics, guesses), out / "comparison")
