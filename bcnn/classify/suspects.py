r"""Labels that held-out scores contradict.

Every image is scored by classifiers that have not seen it, and one temperature makes probabilities of the scores. How
probable its own label is counts relative to the other images of that label, since some classes are harder than others:

.. math:: r = p_{label} / t_{label}, \qquad t_j = \text{mean of } p_j \text{ over the images labelled } j

An image is suspicious if another class is more probable than its label, and r is below `SHARE`; the least r is first.

Reference: Northcutt, Jiang & Chuang, "Confident learning: estimating uncertainty in dataset labels", JAIR 2021, has the
means t_j as thresholds of the *other* class. Half of the images of a class lie below its mean, and flipped ones among
them are missed; benchmarks/suspicious_labels.py has both, and cleanlab's other rules, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..progress import Progress, silent
from . import CLASSIFIERS
from .calibrate import MIN_IMAGES, cross_validate
from .gram import as_matrix, kernel_of
from .kernel import Kernel
from .rescale import RESCALES

# Of the mean probability of a class; the best of a dozen rules tried on textures with flipped labels, 1/4 among them.
# Smaller shares were not tried.
SHARE = 1 / 8


@dataclass(frozen=True)
class HeldOut:
    """Probabilities of images by classifiers that have not seen them."""

    images: Tensor  # (m,), which images: those of classes with at least two
    labels: Tensor  # (m,)
    probabilities: Tensor  # (m, k), float64; 0 for classes that have fewer than two images
    accuracy: float


@dataclass(frozen=True)
class Suspect:
    """An image whose label is contradicted."""

    image: int
    label: int
    instead: int  # the class that it looks like
    probability: float  # of that class
    own: float  # probability of the label
    ratio: float  # of that to the mean over the images of this label


def held_out(
    matrix: Any,
    labels: Tensor,
    groups: Tensor,
    num_classes: int,
    *,
    kind: str = "svm",
    C: float = 1.0,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> HeldOut:
    """Cross-validated probabilities of every image whose class has at least two.

    Args:
        matrix: descriptors (n, d), a row per view of an image.
        labels: of the rows, (n,).
        groups: which image a row is of, (n,), counted from 0.
        num_classes: k.
        kind: a name of `CLASSIFIERS`.
        C: weight of the losses.
        folds: of the cross-validation.
        seed: of the folds.
        progress: hears of the stages "gram" and "calibrate".
    """
    counted = judged_rows(labels, groups)
    kernel = kernel_of(as_matrix(matrix), counted, progress)
    return probabilities_in(
        kernel, labels[counted], groups[counted], num_classes, kind=kind, C=C, folds=folds, seed=seed, progress=progress
    )


def judged_rows(labels: Tensor, groups: Tensor) -> Tensor:
    """The rows of classes with at least two images, which alone can be held out."""
    images = torch.unique(torch.stack([labels, groups]), dim=1)[0]
    counts = torch.bincount(images, minlength=int(labels.max()) + 1 if len(labels) else 0)
    rows = (counts[labels] > 1).nonzero()[:, 0]
    if int((counts > 1).sum()) < 2 or len(torch.unique(groups[rows])) < MIN_IMAGES:
        raise ValueError(
            f"labels: expected at least {MIN_IMAGES} training images, of two classes or more with two images each, got "
            f"{len(torch.unique(groups[rows]))} of {int((counts > 1).sum())} such classes; add images."
        )
    return rows


def probabilities_in(
    kernel: Kernel,
    labels: Tensor,
    groups: Tensor,
    num_classes: int,
    *,
    kind: str = "svm",
    C: float = 1.0,
    folds: int = 5,
    seed: int = 0,
    progress: Progress = silent,
) -> HeldOut:
    """The same from the kernel of rows that can all be held out."""
    present, own = torch.unique(labels, return_inverse=True)
    found = cross_validate(
        CLASSIFIERS[kind], kernel, own, len(present), C=C, groups=groups.numpy(), folds=folds, seed=seed,
        rescale=RESCALES["median" if kind == "svm" else "none"], progress=progress,
    )  # fmt: skip
    assert found.scores is not None
    assert found.accuracy is not None
    images, first = np.unique(groups.numpy(), return_index=True)
    probabilities = torch.zeros(len(images), num_classes, dtype=torch.float64)
    probabilities[:, present] = (found.scores / found.temperature).softmax(1)
    return HeldOut(torch.from_numpy(images), labels[torch.from_numpy(first)], probabilities, found.accuracy)


def suspects(given: HeldOut, share: float = SHARE) -> list[Suspect]:
    """The images whose label is contradicted, the surest contradiction first.

    Args:
        given: from `held_out`.
        share: how improbable a label has to be, relative to the mean of its class.
    """
    P, labels = given.probabilities, given.labels
    own = P.gather(1, labels[:, None])[:, 0]
    count = torch.bincount(labels, minlength=P.shape[1]).clamp_min(1)
    means = torch.zeros(P.shape[1], dtype=P.dtype).index_add_(0, labels, own) / count
    ratio = own / means[labels].clamp_min(torch.finfo(P.dtype).tiny)
    best, instead = P.max(1)
    chosen = ((best > own) & (ratio < share)).nonzero()[:, 0].tolist()
    found = [
        Suspect(int(given.images[i]), int(labels[i]), int(instead[i]), float(best[i]), float(own[i]), float(ratio[i]))
        for i in chosen
    ]
    return sorted(found, key=lambda one: (one.ratio, one.image))
