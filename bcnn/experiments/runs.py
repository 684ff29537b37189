"""A run folder of `bcnn train` as a section of a report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from ..report.classes import confusion_figure
from ..report.curves import curves_figure
from ..report.document import Details, Section, Table, picture_of
from ..report.tables import interval
from ..runs.predictions import text_of
from .jobs.tuned import METRICS


def section_of_run(folder: Path, number: int) -> Section:
    """Accuracy, curves, confusion and configuration."""
    try:
        return _section(folder, json.loads((folder / METRICS).read_text()), number)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{folder / METRICS}: expected that of a run of bcnn train, got: {error!r}.") from None


def _section(folder: Path, metrics: dict[str, Any], number: int) -> Section:
    title = f"{metrics['dataset']}: {metrics['preset']}, {metrics['backbone']} at {metrics['image_size']} px"
    blocks: list[Any] = [_numbers(metrics)]
    if tuned := metrics.get("finetune"):
        figure = curves_figure(tuned["history"], tuned["best_epoch"], selected_on=tuned["selected_on"])
        blocks.append(picture_of(figure, title="Training", alt="Loss and accuracy by epoch, the chosen epoch marked."))
    if metrics["accuracy"] is not None and (folder / "predictions.csv").exists():
        blocks.append(_confusion(folder, list(metrics["per_class"])))
    versions = json.dumps(metrics["versions"], indent=1)
    config = (
        (folder / "config.yaml").read_text() if (folder / "config.yaml").exists() else json.dumps(metrics["config"])
    )
    blocks.append(Details("Configuration and versions", f"{config}\n{versions}"))
    return Section(title, f"run{number}", (f"Run folder: {folder.name}.",), tuple(blocks))


def _numbers(metrics: dict[str, Any]) -> Table:
    rows = [("training images", f"{metrics['num_train']}"), ("classes", f"{metrics['num_classes']}")]
    if metrics["accuracy"] is not None:
        rows += [
            ("test images", f"{metrics['num_test']}"),
            ("accuracy", f"{100 * metrics['accuracy']:.1f} %"),
            ("95 % interval (Wilson)", f"{interval(*metrics['interval95'])} %"),
            ("top-5 accuracy", f"{100 * metrics['top5_accuracy']:.1f} %"),
            ("mean over classes", f"{100 * metrics['mean_class_accuracy']:.1f} %"),
        ]
    if tuned := metrics.get("finetune"):
        before = tuned["before"]["accuracy"]
        rows.append(("before fine-tuning", "none" if before is None else f"{100 * before:.1f} %"))
        rows.append((f"epoch, chosen on {tuned['selected_on']}", f"{tuned['best_epoch']} of {tuned['epochs']}"))
        rows.append(("steps skipped, not finite", f"{tuned['num_skipped']}"))
    rows += [(f"time: {name}", f"{value:.1f} s") for name, value in metrics["time_s"].items()]
    return Table("Numbers", ("", ""), tuple(rows))


def _confusion(folder: Path, classes: list[str]) -> Any:
    numbers = {text_of(name): i for i, name in enumerate(classes)}
    counts = np.zeros((len(classes), len(classes)), int)
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            counts[numbers[line["truth"]], numbers[line["class1"]]] += 1
    return picture_of(
        confusion_figure(counts, classes), title="Confusion", note="A row a true class; each row adds up to 1.",
        alt=f"Confusion matrix of {len(classes)} classes.",
    )  # fmt: skip
