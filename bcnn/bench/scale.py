"""How the cost of the classifier grows with images, classes and the length of descriptors: `bcnn bench scale`.

Made-up descriptors, as in `bcnn bench svm`; one of the three numbers grows, the others stay at the first of theirs.
Training, calibration and prediction are told apart, and the memory of the process that did all of it. What describing
images costs, per image, is measured by `bcnn bench extract`.

Run:      bcnn bench scale --out runs/bench         (--quick: seconds)
Cost:     about ten minutes on two cores with the defaults
Expected: benchmarks/results/
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..classify.fit import fit_classifier
from ..classify.gram import as_matrix
from ..progress import Progress, silent
from ..report.tables import Column, Layout, Record
from .settings import Scale
from .svm import Shape, apart, labels_of, peak_mb, write_descriptors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = {"train_s": "training", "calibrate_s": "calibration", "predict_s": "prediction"}
GROWING = {"images": "num_samples", "classes": "num_classes", "numbers per descriptor": "descriptor_length"}


def run(settings: Scale, progress: Progress = silent) -> list[dict[str, Any]]:
    """One record per size; a size that memory does not allow says so instead of its times."""
    first = Shape(settings.images[0], settings.lengths[0], settings.classes[0])
    cases = [("images", Shape(n, first.descriptor_length, first.num_classes)) for n in settings.images]
    cases += [("classes", Shape(first.num_samples, first.descriptor_length, k)) for k in settings.classes]
    cases += [("numbers per descriptor", Shape(first.num_samples, d, first.num_classes)) for d in settings.lengths]
    records = []
    for number, (grows, shape) in enumerate(cases):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "descriptors.npy"
            apart(write_descriptors, path, shape)
            try:
                found = apart(measure, path, shape, torch.get_num_threads())
            except MemoryError as error:
                found = {"refused": str(error)}
        case = f"{shape.num_samples} images, {shape.descriptor_length} numbers, {shape.num_classes} classes"
        size = getattr(shape, GROWING[grows])
        records.append({"group": f"more {grows}", "case": case, "grows": grows, "size": size, **found})
        progress("sizes", number + 1, len(cases))
    return records


def measure(path: Path, shape: Shape, threads: int) -> dict[str, Any]:
    """Seconds of every stage, and the most memory that was resident; in a process of its own."""
    torch.set_num_threads(threads)
    descriptors, labels = as_matrix(np.load(path, mmap_mode="r")), labels_of(shape)
    spent = []
    for calibrate in (False, True):
        begin = time.perf_counter()
        fitted = fit_classifier(descriptors, labels, shape.num_classes, calibrate=calibrate)
        spent.append(time.perf_counter() - begin)
    begin = time.perf_counter()
    fitted.scores(descriptors)
    predict = time.perf_counter() - begin
    return {
        "train_s": spent[0], "calibrate_s": max(0.0, spent[1] - spent[0]), "predict_s": predict, "memory_mb": peak_mb(),
    }  # fmt: skip


def _plot(records: Sequence[Record]) -> Figure:
    """Time against size, one panel for each number that grows, both axes logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.6), layout="constrained")
    panels = figure.subplots(1, len(GROWING), sharey=True)
    for axes, grows in zip(panels, GROWING, strict=True):
        own = [record for record in records if record["grows"] == grows and record["train_s"] not in ("", None)]
        for key, name in STAGES.items():
            axes.plot([float(r["size"]) for r in own], [float(r[key]) for r in own], marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel=grows)
    panels[0].set_ylabel("s")
    panels[0].legend(frameon=False)
    return figure


LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "case"),
        Column("grows"),
        Column("size"),
        Column("train_s", "training, s", ".2f"),
        Column("calibrate_s", "calibration, s", ".2f"),
        Column("predict_s", "prediction, s", ".2f"),
        Column("memory_mb", "MB", ".0f"),
        Column("refused", "refused"),
    ),
    note="Made-up descriptors, read from a file; training of all one-vs-rest SVMs, what calibration adds to it, and "
    "prediction of all training images; MB: the most that was resident. One run of each.",
    plot=_plot,
)
