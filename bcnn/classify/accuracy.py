"""How good predictions are, with how sure one can be of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

NUM_BINS = 15  # of confidence, in the calibration error


@dataclass(frozen=True)
class Evaluation:
    """Accuracies in [0, 1]; None where there is nothing to measure them on."""

    accuracy: float
    interval: tuple[float, float]  # Wilson's, 95 %
    mean_class_accuracy: float  # over the classes that have samples
    per_class: tuple[float | None, ...]
    counts: tuple[int, ...]  # samples of each class
    confusion: Tensor  # (k, k) counts, a row a true class
    num_images: int
    top5_accuracy: float | None = None  # predictions have no second place
    negative_log_likelihood: float | None = None  # needs probabilities
    calibration_error: float | None = None


def accuracy_of(predicted: Any, labels: Any, num_classes: int) -> Evaluation:
    """Accuracy of scores (n, k), or of predicted classes (n,).

    Example:
        >>> accuracy_of([0, 1, 1, 1], [0, 1, 1, 0], 2).per_class
        (0.5, 1.0)
    """
    values, truth = _tensor(predicted), _tensor(labels).long()
    _check(values, truth, num_classes)
    guesses = values.argmax(1) if values.ndim == 2 else values.long()
    _check_range("predictions", guesses, num_classes)
    confusion = torch.bincount(truth * num_classes + guesses, minlength=num_classes**2).reshape(
        num_classes, num_classes
    )
    counts, right = confusion.sum(1).tolist(), confusion.diagonal().tolist()
    per_class = tuple(r / c if c else None for r, c in zip(right, counts, strict=True))
    seen = [value for value in per_class if value is not None]
    return Evaluation(
        accuracy=sum(right) / len(truth),
        interval=wilson(sum(right), len(truth)),
        mean_class_accuracy=sum(seen) / len(seen),
        per_class=per_class,
        counts=tuple(counts),
        confusion=confusion,
        num_images=len(truth),
        top5_accuracy=_top(values, truth, 5) if values.ndim == 2 else None,
    )


def evaluate_scores(scores: Any, labels: Any, num_classes: int) -> Evaluation:
    """Accuracy of scores (n, k) whose softmax are probabilities: divided by the temperature, that is."""
    probabilities = _tensor(scores).double().softmax(-1)
    return replace(
        accuracy_of(scores, labels, num_classes),
        negative_log_likelihood=negative_log_likelihood(probabilities, labels),
        calibration_error=expected_calibration_error(probabilities, labels),
    )


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Wilson's interval of a proportion, 95 %.

    Example:
        >>> [round(value, 3) for value in wilson(8, 10)]
        [0.49, 0.943]
    """
    from scipy.stats import binomtest

    if not 0 <= correct <= total or not total:
        raise ValueError(f"wilson: expected 0 <= correct <= total and total > 0, got {correct} of {total}.")
    found = binomtest(correct, total).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def mcnemar(correct_a: Any, correct_b: Any) -> float:
    """The exact two-sided p-value of McNemar's test that two methods are equally good on the same samples.

    Args:
        correct_a: whether the first method is right, one truth value a sample.
        correct_b: likewise the second, of the same samples in the same order.
    """
    from scipy.stats import binomtest

    a, b = (np.asarray(values, dtype=bool) for values in (correct_a, correct_b))
    if a.shape != b.shape or a.ndim != 1:
        raise ValueError(f"mcnemar: expected two lists over the same samples, got shapes {a.shape} and {b.shape}.")
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    return float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0


def expected_calibration_error(probabilities: Any, labels: Any, num_bins: int = NUM_BINS) -> float:
    """Mean distance of confidence from accuracy, over bins of the confidence of equal width."""
    values, truth = _tensor(probabilities).double(), _tensor(labels).long()
    confidence, guess = values.max(1)
    bins = (confidence * num_bins).long().clamp(0, num_bins - 1)
    excess = (guess == truth).double() - confidence
    return float(torch.zeros(num_bins, dtype=torch.float64).index_add_(0, bins, excess).abs().sum() / len(truth))


def negative_log_likelihood(probabilities: Any, labels: Any) -> float:
    """Mean of -log p(true class)."""
    values, truth = _tensor(probabilities).double(), _tensor(labels).long()
    return -float(values.gather(1, truth[:, None]).clamp(min=1e-300).log().mean())


def _top(scores: Tensor, truth: Tensor, count: int) -> float:
    """The share of samples whose class has fewer than `count` classes above it."""
    own = scores.gather(1, truth[:, None])
    return float(((scores > own).sum(1) < count).double().mean())


def _check(values: Tensor, truth: Tensor, num_classes: int) -> None:
    n = len(truth)
    if truth.ndim != 1 or tuple(values.shape) not in ((n,), (n, num_classes)) or not n:
        raise ValueError(
            f"accuracy_of: expected scores (n, {num_classes}) or predictions (n,), labels (n,), n > 0, got "
            f"{tuple(values.shape)} and {tuple(truth.shape)}."
        )
    _check_range("labels", truth, num_classes)


def _check_range(name: str, given: Tensor, num_classes: int) -> None:
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= num_classes:
        raise ValueError(f"accuracy_of: expected {name} from 0 to {num_classes - 1}, got {low} to {high}.")


def _tensor(values: Any) -> Tensor:
    return values.detach().cpu() if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
