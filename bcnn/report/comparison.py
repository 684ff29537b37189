"""Presets side by side on the same test images: accuracy with interval, table and plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..classify.accuracy import mcnemar
from ..files import write_csv, written_whole
from .classes import Guess
from .tables import Layout, Record

HEADER = (
    "preset", "accuracy %", "95 % interval", "against", "difference", "p", "top-5 %", "features", "describe s", "fit s",
)  # fmt: skip
NOTE = (
    "Intervals: Wilson. Difference in points of accuracy to the preset named, on the same images; p: exact McNemar "
    "test. Describing all images took one pass through the network for all presets; fit: classifier and calibration."
)


def records_of(metrics: Sequence[Mapping[str, Any]], guesses: Sequence[Sequence[Guess]]) -> list[dict[str, Any]]:
    """One record a preset, each compared with the one before it."""
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
            record["p"] = mcnemar(right, before)
        records.append({**record, **own["versions"]})
    return records


def title(record: Record) -> str:
    """What the records of one table share."""
    return f"{record['dataset']}, {record['backbone']} at {record['image_size']} px, {record['num_test']} test images"


def cells(record: Record) -> list[str]:
    """One row, as text; works on a run's records and on those read from a CSV file alike."""
    compared = str(record["against"])
    return [
        str(record["preset"]),
        f"{100 * float(record['accuracy']):.1f}",
        f"{100 * float(record['low']):.1f} to {100 * float(record['high']):.1f}",
        compared,
        f"{100 * float(record['difference']):+.1f}" if compared else "",
        f"{float(record['p']):.2g}" if compared else "",
        f"{100 * float(record['top5_accuracy']):.1f}",
        str(record["num_features"]),
        f"{float(record['describe_s']):.0f}",
        f"{float(record['fit_s']):.1f}",
    ]


LAYOUT = Layout(HEADER, cells, NOTE, title)
terminal_table, markdown = LAYOUT.terminal, LAYOUT.markdown


def plot(records: Sequence[Record], path: Path) -> None:
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
    with written_whole(path) as temporary:
        figure.savefig(temporary, dpi=120)


def write(metrics: Sequence[Mapping[str, Any]], guesses: Sequence[Sequence[Guess]], out: Path) -> None:
    """comparison.csv, .md and .png; nothing without test images."""
    if any(own["accuracy"] is None for own in metrics):
        return
    records = records_of(metrics, guesses)
    write_csv(out / "comparison.csv", records)
    with written_whole(out / "comparison.md") as temporary:
        temporary.write_text(markdown(records))
    plot(records, out / "comparison.png")
