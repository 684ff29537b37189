"""Whether one method is better than another on the same images, also where each was run with several seeds.

Images are what chance has drawn: intervals and tests are over images, with each method's share of right answers on an
image, 0 or 1, or the mean over its seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .accuracy import mcnemar

NUM_DRAWS = 20_000


def mean_interval(values: Any, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Bootstrap interval of a mean, by percentiles.

    Example:
        >>> low, high = mean_interval([0, 1] * 500)
        >>> round(low, 2), round(high, 2)
        (0.47, 0.53)
    """
    given = _checked("mean_interval", values)
    kinds, counts = np.unique(given, return_counts=True)
    # Which image is drawn does not matter, only how many of each kind: one multinomial number a draw.
    drawn = np.random.default_rng(seed).multinomial(len(given), counts / len(given), size=NUM_DRAWS)
    low, high = np.quantile(drawn @ kinds / len(given), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_interval(right_a: Any, right_b: Any, *, level: float = 0.95, seed: int = 0) -> tuple[float, float]:
    """Of the accuracy of the first method minus that of the second."""
    return mean_interval(_difference(right_a, right_b), level=level, seed=seed)


def paired_p(right_a: Any, right_b: Any, *, seed: int = 0) -> float:
    """The two-sided p-value that both methods are equally good: McNemar's exact test, or that of random signs.

    The latter is for shares other than 0 and 1: each image's difference may as well have had the other sign.
    """
    difference = _difference(right_a, right_b)
    if np.isin(difference, (-1, 0, 1)).all() and np.isin(_checked("paired_p", right_a), (0, 1)).all():
        return mcnemar(np.asarray(right_a) > 0, np.asarray(right_b) > 0)
    sizes, counts = np.unique(np.abs(difference[difference != 0]), return_counts=True)
    if not len(sizes):
        return 1.0
    positive = np.random.default_rng(seed).binomial(counts, 0.5, size=(NUM_DRAWS, len(counts)))
    drawn = np.abs((2 * positive - counts) @ sizes)
    reached = int((drawn >= abs(difference.sum()) - 1e-9).sum())
    return float((reached + 1) / (NUM_DRAWS + 1))  # never below what so many draws can tell


def _difference(right_a: Any, right_b: Any) -> NDArray[np.float64]:
    a, b = _checked("paired", right_a), _checked("paired", right_b)
    if a.shape != b.shape:
        raise ValueError(f"paired: expected two methods on the same images, got {len(a)} and {len(b)} images.")
    return np.round(a - b, 12)  # equal differences of means over seeds stay equal


def _checked(who: str, values: Any) -> NDArray[np.float64]:
    given = np.asarray(values, dtype=np.float64)
    if given.ndim != 1 or not len(given) or not np.isfinite(given).all():
        raise ValueError(f"{who}: expected a finite number an image, at least one image, got shape {given.shape}.")
    return given
