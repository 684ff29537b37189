"""The same classifier where descriptors are many and long: they are read a block at a time, and never kept.

`stream` solves; here is when it is called, what memory it takes, and how its scores are rescaled and calibrated: by
one fold of held-out images, which are thousands, from where the training ended.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import NotConvergedWarning
from ..machine import available_memory
from ..progress import Progress, silent
from .calibrate import FOLD_TOL, MIN_IMAGES, Calibration, assign_folds, judged_by
from .contract import ClassifierKind
from .flip import average_views
from .gram import THIN, DescriptorMatrix, can_stream
from .rescale import by_medians, widths_of
from .stream import StreamedSVM

FROM_COLUMNS = 2048  # exact solutions of one class at a time, d^3 each, take longer than some more passes of them all


@dataclass(frozen=True)
class Large:
    """What `fit_classifier` makes a classifier of."""

    weight: Tensor  # (k, d)
    bias: Tensor  # (k,)
    measured: Calibration
    gap: float
    num_iters: int
    converged: bool


def is_large(matrix: DescriptorMatrix, kind: ClassifierKind, num_rows: int, need: float) -> bool:
    """Whether descriptors are to be streamed: twice as many as they have numbers, and these many, or memory too small.

    Args:
        matrix: the descriptors.
        kind: the classifier; not every one can be streamed.
        num_rows: the rows that count.
        need: bytes that keeping them takes.
    """
    d, free = matrix.shape[1], available_memory()
    many = num_rows > THIN * (d + 1)
    too_much = free is not None and need > free
    return kind.streamed is not None and can_stream(matrix) and many and (d >= FROM_COLUMNS or too_much)


def check_memory(n: int, d: int, num_classes: int) -> None:
    """Raises MemoryError, before anything is read, where even that does not fit."""
    need, free = 20 * (d + 1) ** 2 + 8 * n * num_classes + 10**9, available_memory()
    if free is not None and need > free:
        raise MemoryError(
            f"classifier: expected {need / 1e9:.1f} GB of free memory to stream {n} rows of {d} numbers for "
            f"{num_classes} classes, got {free / 1e9:.1f} GB; take shorter descriptors (--proj-dim, or --pooling "
            "tensor_sketch), fewer images, or train the classifier by --finetune with the network frozen."
        )


def fit_large(
    matrix: DescriptorMatrix,
    labels: Tensor,
    num_classes: int,
    kind: ClassifierKind,
    *,
    C: float,
    groups: np.ndarray[Any, Any],
    weights: Tensor | None,
    calibrate: bool,
    rescale: Any,
    folds: int,
    seed: int,
    progress: Progress = silent,
) -> Large:
    """Train on rows whose label is not -1; `weights` has a number for every row."""
    assert kind.streamed is not None
    counted = labels >= 0
    check_memory(len(labels), matrix.shape[1], num_classes)
    solver: StreamedSVM = kind.streamed(
        matrix, labels.clamp(min=0), num_classes, counted=counted, C=C, sample_weight=weights, progress=progress
    )
    solved = solver.solve()
    if not solved.converged:
        warnings.warn(
            f"classifier: decision values are right to {solved.error:.0e} only after {solved.num_iters} passes over "
            f"the descriptors (duality gap {solved.gap:.1e}, C={C:g}). Scale the descriptors to length 1, or lower C.",
            NotConvergedWarning,
            stacklevel=3,
        )
    weight, bias = solved.weight, solved.bias
    if rescale is by_medians:
        width, low = widths_of(solver.scores(counted), labels[counted])
        weight, bias = weight / width[:, None], (bias - low) / width
    measured = Calibration(kind.temperature, calibrated=False)
    if calibrate:
        measured = _held_out(solver, labels, groups, weights, rescale, (folds, seed), kind.temperature)
    return Large(weight, bias, measured, solved.gap, solved.num_iters, solved.converged)


def _held_out(
    solver: StreamedSVM,
    labels: Tensor,
    groups: np.ndarray[Any, Any],
    weights: Tensor | None,
    rescale: Any,
    how: tuple[int, int],
    temperature: float,
) -> Calibration:
    """Scores of one fold by classifiers that have not seen it, from those that have."""
    counted = labels >= 0
    out = torch.zeros(len(labels), dtype=torch.bool)
    out[counted] = torch.from_numpy(assign_folds(labels[counted].numpy(), groups[counted.numpy()], *how) == 0)
    own = groups[out.numpy()]
    _, first = np.unique(own, return_index=True)
    if len(first) < MIN_IMAGES:
        return Calibration(temperature, calibrated=False)
    solver.hold_out(out)
    solver.solve(tol=FOLD_TOL)
    values = solver.scores(out).double()
    if rescale is by_medians:
        width, low = widths_of(solver.scores(counted & ~out), labels[counted & ~out])
        values = (values - low) / width
    mass = None if weights is None else average_views(weights[out][:, None], own)[:, 0]
    return judged_by(average_views(values, own), labels[out][first], mass, whole=False)
