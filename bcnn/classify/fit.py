"""From descriptors and labels to a linear classifier with probabilities, through one kernel.

Paper: Sec. 3.2, one-vs-rest linear SVMs, C = 1, on l2-normalised descriptors, images and their mirror images.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import unknown_name
from ..progress import Progress, silent
from . import CLASSIFIERS
from .calibrate import Calibration, cross_validate
from .contract import Solution
from .gram import DescriptorMatrix, as_matrix, bytes_kept, combine, kernel_of, scores
from .large import Large, fit_large, is_large
from .rescale import RESCALES

NEGLIGIBLE = 1e-30  # of the heaviest sample, or of 1 if that is less: lighter ones do not count
ABSENT = -1e3  # the bias of a class without samples: it never wins, and its probability is zero in float32


@dataclass(frozen=True)
class LinearClassifier:
    """Weights, and what is known about them. A class without samples has weight 0 and the bias -1000."""

    weight: Tensor  # (k, d) float32
    bias: Tensor  # (k,) float32
    temperature: float  # softmax(scores / temperature) are probabilities
    calibrated: bool  # whether the temperature was measured on held-out samples
    cv_accuracy: float | None  # of the groups of classes with two or more; None where there were too few for it
    cv_scores: Tensor | None  # (groups that count, k), held-out, ascending; None where one of them never was
    converged: bool
    gap: float
    num_iters: int
    kind: str
    C: float
    rescale: str = "none"
    absent: tuple[int, ...] = ()  # classes without samples
    time_s: dict[str, float] = field(default_factory=dict)
    beta: Tensor | None = None  # (n, k) float64: weight = beta^T X, so a score is a sum over the training rows

    def scores(self, descriptors: Any) -> Tensor:
        """Decision values, float64, shape (n, k)."""
        return scores(as_matrix(descriptors), self.weight, self.bias)

    def probabilities(self, values: Tensor) -> Tensor:
        """Scores, of views averaged or not, as probabilities."""
        return (values / self.temperature).softmax(-1)


def fit_classifier(
    matrix: DescriptorMatrix,
    labels: Any,
    num_classes: int,
    *,
    kind: str = "svm",
    C: float = 1.0,
    groups: Any = None,
    sample_weight: Any = None,
    calibrate: bool = True,
    rescale: str = "none",
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> LinearClassifier:
    """Train a classifier of `CLASSIFIERS`, and measure by cross-validation how sure its scores are.

    Args:
        matrix: descriptors (n, d), read twice; arrays are taken, too.
        labels: whole numbers from 0, shape (n,). A class without samples is no error: it never wins (`absent`).
        num_classes: k.
        kind: a name of `CLASSIFIERS`.
        C: weight of the losses.
        groups: equal for rows of the same image (an image and its flip), which stay in one fold and are averaged.
        sample_weight: what multiplies the loss of each sample, and its part in the temperature and in `cv_accuracy`,
            >= 0, shape (n,); the medians of `rescale` know no weights. A sample of weight 0 does not count at all, a
            class that has no others is one without samples.
        calibrate: fit the temperature and `cv_accuracy` on held-out scores; costs about twice the training.
        rescale: a name of `RESCALES`: "median" brings one-vs-rest classifiers to one scale, as the authors' scripts do;
            calibration comes after it.
        folds: of the cross-validation; a class of fewer groups is held out group by group, of one never.
        seed: of the folds.
        progress: hears of the stages "gram", "train", "calibrate", "weights".

    Raises: ValueError for descriptors that are not finite, labels out of range, fewer than two classes with samples.
    """
    if kind not in CLASSIFIERS:
        raise unknown_name("fit_classifier", "classifier", kind, CLASSIFIERS)
    if rescale not in RESCALES:
        raise unknown_name("fit_classifier", "rescale", rescale, RESCALES)
    matrix = as_matrix(matrix)
    given = _checked_labels(labels, matrix.shape[0], num_classes)
    groups = _checked_groups(groups, len(given))
    weights, counted = _checked_weights(sample_weight, len(given))
    present, own = torch.unique(given[counted], return_inverse=True)  # the solvers see classes that have samples
    if len(present) < 2:
        raise ValueError(
            f"fit_classifier: expected samples of at least 2 classes, got {len(present)}; add images"
            f"{'.' if weights is None else ', or let more of them count: those whose weight is zero do not.'}"
        )
    spent: dict[str, float] = {}
    chosen = CLASSIFIERS[kind]
    if is_large(matrix, chosen, len(counted), bytes_kept(*matrix.shape, len(present))):
        how = {"groups": groups, "calibrate": calibrate, "folds": folds, "seed": seed, "rescale": RESCALES[rescale]}
        with _timed(spent, "train"):
            large = fit_large(
                matrix, _spread(given, counted, own, -1), len(present), chosen, C=C, progress=progress, **how,
                weights=None if weights is None else _spread(given, counted, weights, 0.0),
            )  # fmt: skip
        weight = torch.zeros(num_classes, matrix.shape[1]).index_copy_(0, present, large.weight)
        bias = torch.full((num_classes,), ABSENT).index_copy_(0, present, large.bias)
        return _classifier(weight, bias, large.measured, present, large, (kind, C, rescale), spent)
    with _timed(spent, "gram"):
        K = kernel_of(matrix, counted, progress, len(present))
    with _timed(spent, "train"):
        solution = chosen.solve(K, own, len(present), C=C, sample_weight=weights, progress=progress)
    beta, bias_of_present = RESCALES[rescale](K, own, solution.beta, solution.bias)
    measured = Calibration(chosen.temperature, calibrated=False)
    if calibrate:
        with _timed(spent, "calibrate"):
            measured = cross_validate(
                chosen, K, own, len(present), C=C, groups=groups[counted], folds=folds, seed=seed,
                sample_weight=weights, warm=solution.beta, warm_bias=solution.bias, rescale=RESCALES[rescale],
                progress=progress,
            )  # fmt: skip
    with _timed(spent, "weights"):
        weight = torch.zeros(num_classes, matrix.shape[1])
        everywhere = beta.new_zeros(len(given), len(present))
        everywhere[counted] = beta
        weight[present] = combine(matrix, everywhere, progress)
        bias = torch.full((num_classes,), ABSENT).index_copy_(0, present, bias_of_present.float())
    found = _classifier(weight, bias, measured, present, solution, (kind, C, rescale), spent)
    return replace(found, beta=beta.new_zeros(len(given), num_classes).index_copy_(1, present, everywhere))


def _classifier(
    weight: Tensor,
    bias: Tensor,
    measured: Calibration,
    present: Tensor,
    solution: Solution | Large,
    what: tuple[str, float, str],
    spent: dict[str, float],
) -> LinearClassifier:
    absent = tuple(sorted(set(range(len(bias))) - set(present.tolist())))
    return LinearClassifier(
        weight, bias, measured.temperature, measured.calibrated, measured.accuracy,
        _with_absent(measured.scores, present, len(bias)), solution.converged, solution.gap, solution.num_iters,
        *what, absent, spent,
    )  # fmt: skip


def _checked_labels(labels: Any, n: int, num_classes: int) -> Tensor:
    given = torch.as_tensor(np.asarray(labels)).cpu()
    if given.ndim != 1 or len(given) != n or given.is_floating_point():
        raise ValueError(
            f"fit_classifier: expected one whole number per row as labels, {n} rows, got {given.dtype} of shape "
            f"{tuple(given.shape)}."
        )
    if n == 0 or int(given.min()) < 0 or int(given.max()) >= num_classes:
        seen = "none" if n == 0 else f"{int(given.min())} to {int(given.max())}"
        raise ValueError(f"fit_classifier: expected labels from 0 to {num_classes - 1}, got {seen}.")
    return given.long()


def _checked_groups(groups: Any, n: int) -> np.ndarray[Any, Any]:
    given = np.arange(n) if groups is None else np.asarray(groups)
    if given.shape != (n,):
        raise ValueError(f"fit_classifier: expected one group per row, {n} rows, got shape {given.shape}.")
    return given


def _checked_weights(sample_weight: Any, n: int) -> tuple[Tensor | None, Tensor]:
    """The weights of the rows that count, and which rows these are."""
    if sample_weight is None:
        return None, torch.arange(n)
    given = torch.tensor(np.asarray(sample_weight, dtype=np.float64))
    if given.shape != (n,):
        raise ValueError(f"fit_classifier: expected a sample weight per row, {n} rows, got shape {tuple(given.shape)}.")
    wrong = (~(given.isfinite() & (given >= 0))).nonzero()[:, 0]
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"fit_classifier: expected sample weights >= 0 and finite, got {float(given[row])} in row {row}."
        )
    counted = (given > NEGLIGIBLE * min(1.0, float(given.max()))).nonzero()[:, 0]
    return given[counted], counted


def _spread(given: Tensor, rows: Tensor, values: Tensor, other: float) -> Tensor:
    """The values at those rows, another one elsewhere."""
    return torch.full(given.shape, other, dtype=values.dtype).index_copy_(0, rows, values)


def _with_absent(values: Tensor | None, present: Tensor, num_classes: int) -> Tensor | None:
    if values is None:
        return None
    return torch.full((len(values), num_classes), ABSENT, dtype=values.dtype).index_copy_(1, present, values)


@contextmanager
def _timed(spent: dict[str, float], stage: str) -> Iterator[None]:
    begin = time.perf_counter()
    yield
    spent[stage] = time.perf_counter() - begin
