"""The active-set method of `active` for all classes at once, by conjugate gradients: one product an iteration.

Wide descriptors have a Gram matrix of moderate condition, where some thirty products take the place of one
factorisation per class. What has not settled after a few rounds is left to `active`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .active import next_sets
from .dual import Dual

NUM_ROUNDS = 6  # of guesses
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
    todo = (best_gap > allowed).nonzero()[:, 0]
    total = 0
    for _ in range(NUM_ROUNDS):
        if not len(todo):
            break
        some = dual.of(todo)
        X, num_products = _solve(some, B[:, todo], lower[:, todo], upper[:, todo])
        total += num_products
        feasible = some.clip(X)
        gap = some.gap(feasible, dual.K @ feasible)
        better = gap < best_gap[todo]
        best[:, todo[better]], best_gap[todo[better]] = feasible[:, better], gap[better]
        now = next_sets(some, some.Y * X, 1 - some.Y * (dual.K @ X), lower[:, todo], upper[:, todo])
        moved = ((now[0] != lower[:, todo]) | (now[1] != upper[:, todo])).any(0)
        lower[:, todo], upper[:, todo] = now
        B = B.index_copy(1, todo, X)
        todo = todo[moved & (best_gap[todo] > allowed[todo])]
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


def _conjugate_gradients(K: Tensor, free: Tensor, right: Tensor, accuracy: float) -> tuple[Tensor, int]:
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
