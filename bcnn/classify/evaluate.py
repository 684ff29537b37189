"""From rows of views to the accuracy on images: fit on training rows, score test rows, average over views.

Paper: Sec. 3.2: trained on images and their flips, predictions averaged over both.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .accuracy import Evaluation, evaluate_scores
from .fit import LinearClassifier, fit_classifier
from .flip import average_views


class Rows(Protocol):
    """What is known of descriptors besides the numbers; `descriptors.folder.DescriptorRows` is both."""

    labels: Tensor  # (n,), whole numbers
    groups: Tensor  # (n,), equal for the views of an image


Open = Callable[[Any], AbstractContextManager[Any]]  # from rows to their descriptors, as long as these are needed


@dataclass(frozen=True)
class Tested:
    """What a classifier says of images."""

    scores: Tensor  # (images, k) float64, averaged over the views, in ascending order of the groups
    labels: Tensor  # (images,)

    def evaluation(self, temperature: float = 1.0) -> Evaluation | None:
        """How good that is, scores being divided by the temperature; None where there are no images."""
        if not len(self.labels):
            return None
        return evaluate_scores(self.scores / temperature, self.labels, self.scores.shape[1])


@dataclass(frozen=True)
class FitAndTest:
    """A classifier, and what it says of images that it was not trained on."""

    classifier: LinearClassifier
    tested: Tested


def fit_and_test(
    train: Rows, test: Rows, num_classes: int, *, opened: Open = nullcontext, **options: Any
) -> FitAndTest:
    """Fit a classifier on some rows and score others; the descriptors of one are closed before those of the other open.

    Args:
        train: rows to fit on.
        test: rows to score; there may be none.
        num_classes: k.
        opened: gives the descriptors of rows; by default the rows are descriptors themselves.
        **options: of `fit_classifier`, but `groups`.
    """
    classifier = fit_rows(train, num_classes, opened=opened, **options)
    return FitAndTest(classifier, score_rows(test, classifier.scores, num_classes, opened=opened))


def fit_rows(rows: Rows, num_classes: int, *, opened: Open = nullcontext, **options: Any) -> LinearClassifier:
    """A classifier of images by their views; arguments as of `fit_and_test`."""
    with opened(rows) as matrix:
        return fit_classifier(matrix, rows.labels, num_classes, groups=rows.groups.numpy(), **options)


def score_rows(rows: Rows, score: Callable[[Any], Tensor], num_classes: int, *, opened: Open = nullcontext) -> Tested:
    """Scores of images, by their views.

    Args:
        rows: one per view; without any, there are no images.
        score: from descriptors (n, d) to scores (n, k), such as `LinearClassifier.scores`.
        num_classes: k.
        opened: as of `fit_and_test`.
    """
    if not len(rows.labels):
        return Tested(torch.empty(0, num_classes, dtype=torch.float64), rows.labels)
    with opened(rows) as matrix:
        scores = average_views(score(matrix), rows.groups)
    _, first = np.unique(rows.groups.numpy(), return_index=True)
    return Tested(scores, rows.labels[first])
