r"""Odd polynomials that drive a known range of numbers to 1 in the fewest matrix products.

The coupled Newton iteration, Eq. (9), multiplies x = sqrt(eigenvalue) by p(x) = (3x - x^3) / 2 at each step: a small x
grows by 1.5 only, so condition number 10^6 takes some 20 steps. Of all odd polynomials of degree 5 we take at each step
the one closest to 1 on the interval where the numbers are known to lie,
:math:`\min_p \max_{l \le x \le u} |1 - p(x)|`, which maps it to [1 - E, 1 + E]; the composition of such steps is the
best there is (Zolotarev; Chen & Chow 2014; "Polar Express", Amsel et al. 2025). Where a cubic suffices for the last
step it is taken: it saves a product.

Paper: Eq. (9) generalised; the paper's own polynomial is `NEWTON_SCHULZ`.

Legend: lo, hi (l, u) ends of the interval; c coefficients of x, x^3, x^5; E the largest deviation from 1.
"""

from __future__ import annotations

import functools
import math

import numpy as np

Polynomial = tuple[float, ...]

NEWTON_SCHULZ: Polynomial = (1.5, -0.5)
_NEWTON_QUINTIC: Polynomial = (15 / 8, -10 / 8, 3 / 8)
# Narrower than this, the minimax polynomials differ from Newton's by less than they can be computed.
_NARROW = 1e-2
# Below this 1 - E is not a number of float64 any more.
_LEAST = 1e-28


def best_quintic(lo: float, hi: float) -> tuple[Polynomial, float]:
    """The odd polynomial of degree 5 nearest to 1 on [lo, hi], and its largest deviation E, by the Remez exchange."""
    if (hi - lo) / (hi + lo) < _NARROW:
        half = (hi - lo) / (hi + lo)
        return _rescale(_NEWTON_QUINTIC, (hi + lo) / 2), 2.5 * half**3 * (1 + half) ** 2
    x = [(lo + hi) / 2 - (hi - lo) / 2 * math.cos(math.pi * i / 3) for i in range(4)]
    for _ in range(100):
        rows = [[t, t**3, t**5, (-1.0) ** i] for i, t in enumerate(x)]
        a, b, c, error = np.linalg.solve(rows, np.ones(4)).tolist()
        root = math.sqrt(9 * b * b - 20 * a * c)  # p'(x) = a + 3b t + 5c t^2 with t = x^2
        inner = sorted(math.sqrt(t) for t in ((-3 * b + root) / (10 * c), (-3 * b - root) / (10 * c)))
        previous, x = x, [lo, *inner, hi]
        if max(abs(new - old) for new, old in zip(x, previous, strict=True)) < 1e-13 * hi:
            break
    return (a, b, c), abs(error)


def best_cubic(lo: float, hi: float) -> tuple[Polynomial, float]:
    """The odd polynomial of degree 3 nearest to 1 on [lo, hi], in closed form, and its largest deviation E."""
    # p = a x - b x^3 with p(lo) = p(hi) = 1 - E and p(m) = 1 + E at its maximum m, m^2 = (lo^2 + lo hi + hi^2) / 3.
    m = math.sqrt((lo * lo + lo * hi + hi * hi) / 3)
    ends, peak = lo * hi * (lo + hi), 2 * m**3  # p(lo), p(hi) and p(m) for a = 3 m^2, b = 1
    c = 2 / (ends + peak)
    return (3 * m * m * c, -c), (peak - ends) / (peak + ends)


@functools.lru_cache(maxsize=256)
def _schedule(lo: float, tol: float) -> tuple[Polynomial, ...]:
    hi, steps = 1.0, list[Polynomial]()
    while True:
        cubic, error = best_cubic(lo, hi)
        if error <= tol:
            return (*steps, cubic)
        quintic, error = best_quintic(lo, hi)
        steps.append(quintic)
        if error <= tol:
            return tuple(steps)
        lo, hi = 1 - error, 1 + error


@functools.lru_cache(maxsize=256)
def _widest(num_steps: int, tol: float) -> float:
    """The least lo from which `num_steps` steps reach `tol`, to one part in a thousand."""
    low, high = math.log(1e-9), 0.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if len(_schedule(math.exp(middle), tol)) <= num_steps else (middle, high)
    return math.exp(high)


def schedule(lower: float, num_steps: int | None, tol: float) -> tuple[Polynomial, ...]:
    """The polynomials, one a step, that bring sqrt(eigenvalues) in [sqrt(lower), 1] to 1.

    Args:
        lower: least eigenvalue over the bound the matrix was divided by, in (0, 1]; below 1e-28 counts as that.
        num_steps: at most so many steps, in which case the range covered is the widest that so many steps bring to
            `tol`: smaller eigenvalues come out too small rather than all of them inaccurate. None for no limit.
        tol: the largest `|1 - x|` that is wanted; below the rounding of float64 counts as that rounding.
    """
    lo, tol = math.sqrt(max(lower, _LEAST)), max(tol, 4e-16)
    if num_steps is None:
        return _schedule(lo, tol)
    return _schedule(max(lo, _widest(num_steps, tol)), tol) if num_steps else ()


# What `torch.compiler.assume_constant_result` sets; the decorator itself imports the whole compiler, two seconds.
schedule._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _rescale(p: Polynomial, centre: float) -> Polynomial:
    return tuple(c / centre ** (2 * i + 1) for i, c in enumerate(p))
