"""A run folder of `bcnn train` as a section of a report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..report.classes import confusion_figure
from ..report.curves import curves_figure
from ..report.document import Details, Picture, Section, Table, picture_of
from ..report.tables import interval
from .run_folder import Run, read_run


def section_of_run(folder: Path, number: int) -> Section:
    """Accuracy, curves, confusion and configuration."""
    run = read_run(folder)
    blocks: list[Table | Picture | Details] = [_numbers(run)]
    if tuned := run.finetune:
        figure = curves_figure(list(map(vars, tuned.history)), tuned.best_epoch, selected_on=tuned.selected_on)
        blocks.append(picture_of(figure, title="Training", alt="Loss and accuracy by epoch, the chosen epoch marked."))
    if run.truth:
        figure = confusion_figure(confusion_counts(run.truth, run.predicted, len(run.classes)), run.classes)
        note, alt = "A row a true class; each row adds up to 1.", f"Confusion matrix of {len(run.classes)} classes."
        blocks.append(picture_of(figure, title="Confusion", note=note, alt=alt))
    config = folder / "config.yaml"
    text = config.read_text() if config.exists() else json.dumps(run.config)
    blocks.append(Details("Configuration and versions", f"{text}\n{json.dumps(run.versions, indent=1)}"))
    title = f"{run.dataset}: {run.preset}, {run.backbone} at {run.image_size} px"
    return Section(title, f"run{number}", (f"Run folder: {folder.name}.",), tuple(blocks))


def confusion_counts(truth: Sequence[int], predicted: Sequence[int], num_classes: int) -> NDArray[np.int64]:
    """How often each true class, a row, was taken for each class, a column."""
    cells = num_classes * np.array(truth, int) + np.array(predicted, int)
    return np.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def _numbers(run: Run) -> Table:
    rows = [("training images", f"{run.num_train}"), ("classes", f"{run.num_classes}")]
    if run.accuracy is not None:
        rows += [
            ("test images", f"{run.num_test}"),
            ("accuracy", f"{100 * run.accuracy:.1f} %"),
            ("95 % interval (Wilson)", f"{interval(*run.interval95)} %"),
            ("top-5 accuracy", f"{100 * run.top5_accuracy:.1f} %"),
            ("mean over classes", f"{100 * run.mean_class_accuracy:.1f} %"),
        ]
    if tuned := run.finetune:
        rows.append(("before fine-tuning", "none" if tuned.before is None else f"{100 * tuned.before:.1f} %"))
        rows.append((f"epoch, chosen on {tuned.selected_on}", f"{tuned.best_epoch} of {tuned.history[-1].epoch}"))
        rows.append(("steps skipped, not finite", f"{tuned.num_skipped}"))
    rows += [(f"time: {name}", f"{value:.1f} s") for name, value in run.time_s.items()]
    return Table("Numbers", ("", ""), tuple(rows))
