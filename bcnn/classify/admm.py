"""All one-vs-rest problems at once by the alternating direction method of multipliers: one product an iteration.

It comes near the solution in some fifty products of K's size with (n, k), wherever it starts; `active` finishes.

Reference: Boyd et al., "Distributed optimization and statistical learning via ADMM", 2011, Sec. 3.4 and 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .dual import Dual

RELAX = 1.6
CHECK_EVERY = 10
RHO = 0.02  # of the root of K's largest eigenvalue; 0.01 to 0.05 take about as long
RETUNE = 5.0  # residuals this far apart ask for another rho


@dataclass
class State:
    """Where the iteration stands: Z feasible, U the scaled multipliers of B = Z, rho the weight of B = Z."""

    Z: Tensor  # (n, k)
    U: Tensor  # (n, k)
    rho: float
    num_iters: int = 0
    settled: bool = False  # whether the multipliers stood still in the end


def start(dual: Dual, warm: Tensor | None = None, values: Tensor | None = None) -> State:
    """From zero, or from B of a similar problem; rho for the middle of K's eigenvalues and the size of C.

    With `values`, the decision values of the similar problem, B need not give them: that of a few more samples did.
    """
    sums = dual.K.row_sums() - (dual.K.diagonal() - dual.sizes)  # without what light samples add to the diagonal
    top = float(torch.linalg.vector_norm(sums) / len(dual.K) ** 0.5)  # a lower bound of the largest
    rho = max(RHO * top**0.5, 1 / float(torch.as_tensor(dual.upper, dtype=dual.Y.dtype).max()))
    if warm is None:
        zero = torch.zeros_like(dual.Y)
        return State(zero, zero.clone(), rho)
    Z = dual.clip(warm)
    F = dual.K @ Z if values is None else values + dual.ridge_times(Z)
    return State(Z, (dual.Y - F) / rho, rho)


def iterate(dual: Dual, state: State, *, num_iters: int, tol: float) -> None:
    """Advance `state`; ends early when the multipliers of all classes stand still to `tol` of their size."""
    inverse = dual.K.shifted_inverse(state.rho)
    end = state.num_iters + num_iters
    while state.num_iters < end:
        for _ in range(min(CHECK_EVERY, end - state.num_iters)):
            before = state.Z
            B = inverse(dual.Y + state.rho * (before - state.U))
            mixed = RELAX * B + (1 - RELAX) * before
            state.Z = dual.clip(mixed + state.U)
            state.U = state.U + mixed - state.Z
            state.num_iters += 1
        size = torch.linalg.vector_norm(state.Z, dim=0).clamp(min=1e-12)
        primal = torch.linalg.vector_norm(B - state.Z, dim=0) / size
        change = torch.linalg.vector_norm(state.Z - before, dim=0) / size
        state.settled = bool((torch.maximum(primal, change) < tol).all())
        if state.settled:
            return
        if _retune(dual, state, B, before):
            inverse = dual.K.shifted_inverse(state.rho)


def multipliers(dual: Dual, state: State) -> Tensor:
    """B of the next step, unclipped: its decision values are nearer to the solution's than those of Z."""
    B: Tensor = dual.K.shifted_inverse(state.rho)(dual.Y + state.rho * (state.Z - state.U))
    return B


def _retune(dual: Dual, state: State, B: Tensor, before: Tensor) -> bool:
    """Balance how far B is from Z against how far the gradient is from balanced, each to its own size."""
    primal = (B - state.Z).norm() / torch.maximum(B.norm(), state.Z.norm()).clamp(min=1e-12)
    slope = state.rho * (state.Z - before).norm() / (state.rho * state.U).norm().clamp(min=1e-12)
    factor = float((primal / slope.clamp(min=1e-300)).sqrt().clamp(1e-2, 1e2))
    if 1 / RETUNE < factor < RETUNE:
        return False
    rho = min(max(state.rho * factor, 1e-9), 1e9)
    if rho == state.rho:
        return False
    state.U = state.U * (state.rho / rho)
    state.rho = rho
    return True
