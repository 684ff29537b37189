"""How sure scores are: held-out scores by cross-validation in the Gram matrix, and one temperature fitted to them.

Reference: Guo et al., "On calibration of modern neural networks", ICML 2017 (temperature scaling).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from ..errors import NotConvergedWarning
from ..progress import Progress, silent
from .contract import ClassifierKind
from .flip import average_views
from .kernel import Kernel
from .rescale import Rescale, unchanged

FOLD_TOL = 1e-2  # of held-out decision values: far below what a temperature can tell
MIN_IMAGES = 10  # fewer held-out images tell no temperature


@dataclass(frozen=True)
class Calibration:
    """What held-out scores tell."""

    temperature: float
    calibrated: bool
    accuracy: float | None = None
    scores: Tensor | None = None  # (groups, k), averaged over the rows of a group


def cross_validate(
    kind: ClassifierKind,
    K: Kernel,
    labels: Tensor,
    num_classes: int,
    *,
    C: float,
    groups: np.ndarray[Any, Any],
    folds: int,
    seed: int,
    sample_weight: Tensor | None = None,
    warm: Tensor | None = None,
    warm_bias: Tensor | float = 0.0,
    rescale: Rescale = unchanged,
    progress: Progress = silent,
) -> Calibration:
    """Score every row by a classifier that has not seen its group, and fit the temperature to that.

    A class of a single image is never held out: without it, the others could not be told from it. Where too few images
    remain, nothing is measured: the temperature is the default, and `calibrated` is False.

    Sample weights go with their rows into the folds, which are made by numbers of groups; in temperature and accuracy a
    group counts as much as its rows do on average.
    """
    fold = assign_folds(labels.numpy(), groups, folds, seed)
    _, first = np.unique(groups, return_index=True)
    judged = torch.from_numpy(fold[first] >= 0)
    if int(judged.sum()) < MIN_IMAGES:
        return Calibration(kind.temperature, calibrated=False)
    values = torch.zeros(len(K), num_classes, dtype=torch.float64)
    num_folds = int(fold.max()) + 1
    warm_scores = None if warm is None else K @ warm + warm_bias
    for i in range(num_folds):
        out = torch.from_numpy(fold == i)
        seen, unseen = (~out).nonzero()[:, 0], out.nonzero()[:, 0]
        inner = K.among(seen)
        options = {
            "warm": None if warm is None else warm[seen],
            "warm_scores": None if warm_scores is None else warm_scores[seen],
            "sample_weight": None if sample_weight is None else sample_weight[seen],
        }
        beta, bias = rescale(
            inner, labels[seen], *_solve_quietly(kind, inner, labels[seen], num_classes, C=C, **options)
        )
        values[unseen] = K.across(unseen, seen, beta) + bias
        progress("calibrate", i + 1, num_folds)
    values = average_views(values, groups)[judged]
    truth = labels[first][judged]
    mass = None if sample_weight is None else average_views(sample_weight[:, None], groups)[judged][:, 0]
    return judged_by(values, truth, mass, whole=bool(judged.all()))


def judged_by(values: Tensor, truth: Tensor, mass: Tensor | None, *, whole: bool) -> Calibration:
    """What held-out scores of images (m, k) tell; they are kept if they are those of the whole training set."""
    accuracy = float(_mean((values.argmax(1) == truth).double(), mass))
    return Calibration(fit_temperature(values, truth, mass), True, accuracy, values if whole else None)


def _mean(values: Tensor, mass: Tensor | None) -> Tensor:
    return values.mean() if mass is None else (values * mass).sum() / mass.sum()


def _solve_quietly(
    kind: ClassifierKind, K: Kernel, labels: Tensor, num_classes: int, **options: Any
) -> tuple[Tensor, Tensor]:
    """One fold; if it falls short of its tolerance, so did or will the training, which says so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotConvergedWarning)
        solution = kind.solve(K, labels, num_classes, tol=FOLD_TOL, **options)
    return solution.beta, solution.bias


def assign_folds(
    labels: np.ndarray[Any, Any], groups: np.ndarray[Any, Any], folds: int, seed: int
) -> np.ndarray[Any, Any]:
    """The fold of each row: groups stay whole, classes are spread evenly; -1 for a class of one group."""
    if folds < 2:
        raise ValueError(f"cross_validate: expected folds >= 2, got {folds}.")
    names, first, index = np.unique(groups, return_index=True, return_inverse=True)
    of_group = labels[first]
    if not np.array_equal(of_group[index], labels):
        bad = names[index[(of_group[index] != labels).argmax()]]
        raise ValueError(f"cross_validate: expected one label per group, got several in group {bad!r}.")
    generator = np.random.default_rng(seed)
    result = np.full(len(names), -1)
    offset = 0
    for label in np.unique(of_group):
        members = generator.permutation(np.flatnonzero(of_group == label))
        if len(members) > 1:
            result[members] = (offset + np.arange(len(members))) % folds
            offset += len(members)
    return result[index]


def fit_temperature(scores: Tensor, labels: Tensor, mass: Tensor | None = None) -> float:
    """T > 0 that makes softmax(scores / T) most likely, between 0.01 and 100; `mass` says how much each row counts."""

    def loss(log_temperature: float) -> float:
        logs = (scores / np.exp(log_temperature)).log_softmax(1)
        return -float(_mean(logs.gather(1, labels[:, None])[:, 0], mass))

    found = minimize_scalar(loss, bounds=(np.log(1e-2), np.log(1e2)), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))
