"""Descriptors with classes, for the tests of classifiers."""

from __future__ import annotations

import numpy as np


def blobs(
    n: int = 120, d: int = 300, k: int = 4, *, strength: float = 0.25, norm: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one length with a common part and a part of the class, and labels in turn."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % k
    descriptors = rng.normal(size=d) + strength * rng.normal(size=(k, d))[labels] + rng.normal(size=(n, d))
    return norm * descriptors / np.linalg.norm(descriptors, axis=1, keepdims=True), labels


def overlapping(n: int = 200, d: int = 5, k: int = 3, *, norm: float = 1.0, seed: int = 0):
    """Few descriptors, classes that no plane separates: the rank of the Gram matrix is far below n."""
    rng = np.random.default_rng(seed)
    descriptors = rng.normal(size=(n, d))
    labels = (descriptors[:, :k] + 0.7 * rng.normal(size=(n, k))).argmax(1)
    return norm * descriptors, labels
