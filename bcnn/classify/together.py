"""The active-set method of `active` for all classes at once: the products are those of matrices.

Wide descriptors have a Gram matrix of moderate condition, where some thirty products with it, by conjugate gradients,
take the place of one factorisation per class. Where there are more samples than columns, only few multipliers are free,
and their systems are small: one per class is solved, side by side. What has not settled after a few rounds is left to
`active`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .active import next_sets
from .dual import Dual
from .kernel import Kernel
from .threads import side_by_side

NUM_ROUNDS = 6  # of guesses
NUM_ROUNDS_THIN = 20  # where a round is cheap
NUM_PRODUCTS = 80  # a solve; an ill-conditioned K is better factorised


def polish_together(dual: Dual, B: Tensor, guess: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor, int]:
    """The best feasible points found, their gaps, and the number of products; arguments as of `active.polish`.

    Args:
        dual: the problems.
        B: feasible points, shape (n, k).
        guess: multipliers whose values outside the bounds tell where they are held, shape (n, k).
        allowed: the gap at which a class is done, shape (k,).
    """
    best, best_gap = B.clone(), dual.gap(B, dual.K @ B)
    lower, upper = guess <= 0, guess >= dual.upper
    todo = torch.arange(dual.num_classes)  # those that are near enough already become exact by one round
    total = 0
    solve, num_rounds = (_solve_each, NUM_ROUNDS_THIN) if dual.K.thin else (_solve, NUM_ROUNDS)
    for _ in range(num_rounds):
        if not len(todo):
            break
        some = dual.of(todo)
        X, num_products = solve(some, B[:, todo], lower[:, todo], upper[:, todo])
        total += num_products
        feasible = some.clip(X)
        gap = some.gap(feasible, dual.K @ feasible)
        better = gap < best_gap[todo]
        best[:, todo[better]], best_gap[todo[better]] = feasible[:, better], gap[better]
        now = next_sets(some, some.Y * X, 1 - some.Y * (dual.K @ X), lower[:, todo], upper[:, todo])
        moved = ((now[0] != lower[:, todo]) | (now[1] != upper[:, todo])).any(0)
        lower[:, todo], upper[:, todo] = now
        B = B.index_copy(1, todo, X)
        few = (~(now[0] | now[1])).sum(0) <= dual.K.most_rank  # more cannot be free: such a guess leads nowhere
        todo = todo[moved & few & (best_gap[todo] > allowed[todo])]
    return best, best_gap, total


def _solve(dual: Dual, B: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, int]:
    """B with the multipliers of `lower` at 0, of `upper` at C, and margins of 1 at all others; and the products."""
    held = dual.Y * torch.where(upper, dual.upper, torch.zeros_like(B))
    free = (~(lower | upper)).to(B.dtype)
    X = torch.where(free > 0, B, held)
    total = 0
    for accuracy in (1e-9, 1e-5):  # the second corrects what rounding did to the first
        residual = free * (dual.Y - dual.K @ X)
        change, num_products = _conjugate_gradients(dual.K, free, residual, accuracy)
        X = X + change
        total += num_products + 1
        if num_products == NUM_PRODUCTS:
            break
    return X, total


def _solve_each(dual: Dual, B: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, int]:
    """The same by one factorisation per class; from the multipliers of before, so that little is left to correct."""
    X = dual.Y * torch.where(upper, dual.upper, torch.zeros_like(B))
    free = ~(lower | upper)
    right = dual.Y - dual.K @ X

    def one(j: int) -> None:
        own = free[:, j].nonzero()[:, 0]
        if len(own):
            times, solve = dual.K.system(own)
            x = B[own, j]
            for _ in range(3):  # a factor that had to be shifted is corrected
                x = x + solve(right[own, j] - times(x))
            X[own, j] = x

    for _ in side_by_side(one, dual.num_classes):
        pass
    return X, 2


def _conjugate_gradients(K: Kernel, free: Tensor, right: Tensor, accuracy: float) -> tuple[Tensor, int]:
    """X, zero outside `free`, with K X = right inside it, each column to its own accuracy."""
    X, residual, direction = torch.zeros_like(right), right, right
    product = residual.square().sum(0)
    goal = accuracy**2 * product
    tiny = torch.finfo(right.dtype).tiny
    for i in range(NUM_PRODUCTS):
        if bool((product <= goal).all()):
            return X, i
        image = free * (K @ direction)
        step = product / (direction * image).sum(0).clamp(min=tiny) * (product > 0)
        X = X + step * direction
        residual = residual - step * image
        before, product = product, residual.square().sum(0)
        direction = residual + product / before.clamp(min=tiny) * direction
    return X, NUM_PRODUCTS
