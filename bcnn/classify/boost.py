r"""Multiclass boosting by gradient descent: the risk, its weights, the length of a step, and the least-squares learner.

.. math:: R(f) = \sum_i \sum_{k \ne y_i} e^{-\frac12 (f_{y_i}(x_i) - f_k(x_i))}, \qquad
    w_{ik} = e^{-\frac12 (f_{y_i} - f_k)} \; (k \ne y_i), \qquad w_{i y_i} = -\sum_{k \ne y_i} w_{ik}

The next learner g goes down the gradient: it is fitted to -w by least squares, and its weight alpha is the minimizer of
R(f + alpha g), the root of a monotone derivative.

Reference: Moghimi et al., "Boosted convolutional neural networks", BMVC 2016 (GD-MCBoost of Saberian & Vasconcelos
2011); their code shrinks alpha by 0.1. For two classes R is AdaBoost's exponential loss.

Legend: f, g scores (n, k); w weights (n, k); K the Gram matrix of descriptors (n, n).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

MAX_EXPONENT = 10.0  # of a step: where the risk falls for ever, as it does for a learner without mistakes


def risk(f: Tensor, labels: Tensor) -> float:
    """R(f), of all rows together."""
    w = weights(f, labels)
    return float(-w.gather(1, labels[:, None]).sum())


def weights(f: Tensor, labels: Tensor) -> Tensor:
    """w: twice the gradient of R, shape (n, k); every row sums to zero."""
    w = torch.exp(-0.5 * margins(f, labels))
    w.scatter_(1, labels[:, None], 0.0)
    return w.scatter(1, labels[:, None], -w.sum(1, keepdim=True))


def margins(f: Tensor, labels: Tensor) -> Tensor:
    """How far the true class is ahead of each, f_y - f_k, shape (n, k); 0 for itself."""
    return f.gather(1, labels[:, None]) - f


def step_length(f: Tensor, g: Tensor, labels: Tensor) -> float:
    """The alpha >= 0 with the least R(f + alpha g); 0 if R does not fall along g."""
    w, ahead = weights(f, labels), margins(g, labels)
    w.scatter_(1, labels[:, None], 0.0)

    def slope(alpha: float) -> float:  # -2 dR / dalpha
        return float((w * ahead * torch.exp(-0.5 * alpha * ahead)).sum())

    largest = float(ahead.abs().max()) if len(g) else 0.0
    if largest == 0 or slope(0.0) <= 0:
        return 0.0
    limit = 2 * MAX_EXPONENT / largest
    return limit if slope(limit) >= 0 else float(brentq(slope, 0.0, limit, xtol=1e-12 * limit, rtol=1e-12))


class Learner(NamedTuple):
    """A linear function of descriptors, by the training rows: g = K beta + bias."""

    beta: Tensor  # (n, k)
    bias: Tensor  # (k,)
    g: Tensor  # (n, k), on the training rows


class LeastSquares:
    """Ridge regression on descriptors with a free bias, by one eigen-decomposition for all rounds.

    It minimizes `sum |g(x_i) - t_i|^2 + |W|^2 / C`.

    Args:
        K: the Gram matrix, shape (n, n).
        C: the weight of the errors.
    """

    def __init__(self, K: Tensor, C: float):
        self._mean = K.mean(0, keepdim=True)
        centred = K - self._mean - self._mean.mT + self._mean.mean()
        self._sigma, self._vectors = torch.linalg.eigh(centred)
        self._K, self._ridge = K, 1 / C

    def fit(self, targets: Tensor) -> Learner:
        """The learner of these targets, shape (n, k)."""
        middle = targets.mean(0)
        weight = 1 / (self._sigma.clamp_min(0) + self._ridge)
        beta = self._vectors @ (weight[:, None] * (self._vectors.mT @ (targets - middle)))
        beta = beta - beta.mean(0)  # of centred descriptors
        bias = middle - (self._mean @ beta)[0]
        return Learner(beta, bias, self._K @ beta + bias)
