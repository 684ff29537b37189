"""The exact end of one SVM: guess which multipliers lie at a bound, solve for the others, correct the guess.

A semismooth Newton (primal-dual active set) method; when the guess no longer changes the solution is exact.

Reference: Hintermueller, Ito, Kunisch, "The primal-dual active set strategy as a semismooth Newton method", 2002.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dual import Dual


def polish(dual: Dual, b: Tensor, guess: Tensor, *, max_iters: int = 30) -> tuple[Tensor, float, int]:
    """The best feasible point of one problem found from `guess`, its gap, and the number of solves.

    Args:
        dual: a problem of one class.
        b: a feasible point, shape (n,).
        guess: multipliers whose values outside the bounds tell where they are held, shape (n,).
    """
    y = dual.Y[:, 0]
    best, best_gap = b, float(dual.gap(b[:, None], (dual.K @ b)[:, None]))
    a = y * b
    lower, upper = guess <= 0, guess >= dual.upper_for(guess)
    num_solves = 0
    while num_solves < max_iters:
        num_solves += 1
        a = _solve(dual, y, a, lower, upper)
        m = 1 - y * (dual.K @ (y * a))
        feasible = dual.clip((y * a)[:, None])[:, 0]
        gap = float(dual.gap(feasible[:, None], (dual.K @ feasible)[:, None]))
        if gap < best_gap:
            best, best_gap = feasible, gap
        now_lower, now_upper = next_sets(dual, a, m, lower, upper)
        if torch.equal(now_lower, lower) and torch.equal(now_upper, upper):
            break
        lower, upper = now_lower, now_upper
    return best, best_gap, num_solves


def next_sets(dual: Dual, a: Tensor, m: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor]:
    """Hold what left its bounds, let go what lies on the wrong side of its margin."""
    free = ~(lower | upper)
    return (free & (a <= 0)) | (lower & (m <= 0)), (free & (a >= dual.upper_for(a))) | (upper & (m >= 0))


def _solve(dual: Dual, y: Tensor, a: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Multipliers with those of `lower` at 0, of `upper` at C, and the margin exactly 1 at all others."""
    result = torch.where(upper, dual.upper_for(a), torch.zeros_like(a))
    free = (~(lower | upper)).nonzero()[:, 0]
    if not len(free):
        return result
    times, solve = dual.K.system(free)
    right = (y - dual.K @ (y * result))[free]
    x = (y * a)[free]
    for _ in range(3):  # the shift acts on the change alone, so that it fades
        x = x + solve(right - times(x))
    result[free] = y[free] * x
    return result
