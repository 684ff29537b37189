"""One SVM by an interior-point method: slower than `admm`, and sure where descriptors are few and classes overlap.

Mehrotra's predictor and corrector on the dual; K + D is factorised whole, or by K = L L^T where the rank of K is small.

Reference: Fine & Scheinberg, "Efficient SVM training using low-rank kernel representations", JMLR 2001.
Legend: a multipliers, z and v those of a >= 0 and a <= C, room = C - a; mu the mean of a z and room v; L factor (n, r).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .dual import Dual
from .kernel import Solve


@dataclass(frozen=True)
class _Point:
    """A strictly feasible point; without an upper bound v is zero and room is one."""

    a: Tensor
    z: Tensor
    v: Tensor
    room: Tensor
    bounded: bool

    @property
    def mu(self) -> float:
        return float((self.a * self.z).sum() + (self.room * self.v).sum()) / (len(self.a) * (1 + self.bounded))

    def moved(self, step: float, da: Tensor, dz: Tensor, dv: Tensor) -> _Point:
        room = self.room - step * da if self.bounded else self.room
        return _Point(self.a + step * da, self.z + step * dz, self.v + step * dv, room, self.bounded)

    def longest(self, da: Tensor, dz: Tensor, dv: Tensor) -> float:
        """The longest step up to 1 that keeps everything positive."""
        pairs = [(self.a, da), (self.z, dz)] + ([(self.room, -da), (self.v, dv)] if self.bounded else [])
        return min([1.0, *(float((-x / dx)[dx < 0].min()) for x, dx in pairs if bool((dx < 0).any()))])


def interior(dual: Dual, L: Tensor | None, *, max_iters: int = 80) -> tuple[Tensor, Tensor, int]:
    """A feasible point of one problem, a guess of what is held at its bounds (as `active.polish` takes), iterations."""
    y = dual.Y[:, 0]
    point = best = _start(dual, y)
    best_gap, least, num_iters = float("inf"), point.mu, 0
    while True:
        F = dual.K @ (y * point.a)
        gap = float(dual.gap((y * point.a)[:, None], F[:, None]))
        if gap < best_gap:
            best, best_gap = point, gap
        if num_iters == max_iters or point.mu <= 1e-13 * float(point.a.mean()):  # the objective is near the sum of a
            break
        num_iters += 1
        solve = dual.K.shifted_solve(point.z / point.a + point.v / point.room, L)
        point, step = _advance(point, y * F - 1 - point.z + point.v, y, solve)
        if not point.mu < 10 * least or step < 1e-9:  # rounding has the last word
            break
        least = min(least, point.mu)
    guess = torch.where(best.a < best.z, -1.0, best.a)
    if best.bounded:
        guess = torch.where((best.room < best.v) & (best.room < best.a), dual.upper_for(y) + 1.0, guess)
    return dual.clip((y * best.a)[:, None])[:, 0], guess, num_iters


def _start(dual: Dual, y: Tensor) -> _Point:
    """The middle of the box, all products a z and room v of one size: long steps from the first."""
    bounded = not dual.squared
    upper = dual.upper_for(y)
    a = torch.ones_like(y) * (upper / 2 if bounded else 1 / (1 + dual.K.diagonal() - dual.sizes))
    gradient = y * (dual.K @ (y * a)) - 1
    margin = max(1.0, float(gradient.abs().max())) * (a.max() / a)
    z = gradient.clamp(min=0) + margin
    if bounded:
        return _Point(a, z, (-gradient).clamp(min=0) + margin, upper - a, True)
    return _Point(a, z, torch.zeros_like(a), torch.ones_like(a), False)


def _advance(p: _Point, residual: Tensor, y: Tensor, solve: Solve) -> tuple[_Point, float]:
    """One step of predictor and corrector, and its length."""
    trial = _direction(p, residual, y, solve, p.a * p.z, p.room * p.v)
    aim = p.moved(p.longest(*trial), *trial).mu
    target = min(1.0, (aim / p.mu) ** 3) * p.mu
    da, dz, dv = trial
    changes = _direction(
        p, residual, y, solve, p.a * p.z + da * dz - target, (p.room * p.v - da * dv - target) * p.bounded
    )
    step = 0.995 * p.longest(*changes)
    return p.moved(step, *changes), step


def _direction(
    p: _Point, residual: Tensor, y: Tensor, solve: Solve, az: Tensor, rv: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Newton's step to zero residual and products a z, room v that are less by az, rv."""
    da = y * solve(y * (rv / p.room - az / p.a - residual))
    return da, -(az + p.z * da) / p.a, (p.v * da - rv) / p.room
