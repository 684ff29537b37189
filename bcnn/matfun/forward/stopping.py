"""When an iteration ends: after a number of steps, or when it no longer moves."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...errors import NotConvergedWarning


@dataclass
class Stopping:
    """Stop when the iterate changes by less than `tol`, relatively, in every matrix of the batch."""

    who: str
    tol: float
    maximum: int
    change: float = field(default=float("inf"), init=False)

    def reached(self, new: Tensor, old: Tensor) -> bool:
        """Whether the step from `old` to `new` was small enough; one that rounding alone drives counts as such."""
        size = torch.linalg.matrix_norm(new.detach())
        moved = torch.linalg.matrix_norm((new - old).detach())
        relative = torch.where(size > 0, moved / size, torch.zeros_like(size))
        before, self.change = self.change, float(relative.max()) if relative.numel() else 0.0
        stagnant = self.change > 0.5 * before and self.change < 1e3 * torch.finfo(new.dtype).eps
        if stagnant and self.change > self.tol:
            self.not_reached()
        return self.change <= self.tol or stagnant

    def not_reached(self) -> None:
        """Warn that the tolerance was not met."""
        warnings.warn(
            f"{self.who}: expected a relative change below tol={self.tol:.1e}, got {self.change:.1e} at the end "
            f"(at most {self.maximum} steps); raise `tol`, pass float64, or use forward='eigen'.",
            NotConvergedWarning,
            stacklevel=3,
        )


def resolve_steps(
    who: str, num_iters: int | None, tol: float | None, *, default: int, maximum: int
) -> tuple[int, Stopping | None]:
    """How many steps at most, and the test that may end them earlier."""
    check_steps(who, num_iters, tol)
    if tol is not None:
        return maximum, Stopping(who, tol, maximum)
    return default if num_iters is None else num_iters, None


def check_steps(who: str, num_iters: int | None, tol: float | None) -> None:
    """Raise if both `num_iters` and `tol` are given."""
    if num_iters is not None and tol is not None:
        raise ValueError(f"{who}: expected `num_iters` or `tol`, got both; give the one that should decide.")
