r"""The dual problems of one-vs-rest linear SVMs, and how far a point is from the solution.

With f = K a y, one problem a class, in the variables a (the multipliers):

.. math:: \min_a \tfrac12 (ay)^T K (ay) - \sum_i a_i, \qquad 0 \le a_i \le C

The squared hinge has no upper bound and K + I / (2C) in place of K. A sample of weight w has C w in place of C in both.
Everything is divided by the mean of K's diagonal, so that neither the unit of the descriptors nor C asks for
tolerances of its own; decision values f do not change by that.

Legend: K Gram matrix, the 1 of the bias and the squared hinge's ridge included; Y = +-1, one column a class (n, k);
B = Y * a; m = 1 - Y * (K B), positive where a sample lies inside the margin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .kernel import Kernel


@dataclass(frozen=True)
class Dual:
    """All one-vs-rest problems of one Gram matrix."""

    K: Kernel  # (n, n)
    Y: Tensor  # (n, k)
    C: float | Tensor  # in the units of K; with sample weights a number a row, (n, 1)
    squared: bool
    unit: float  # K and C were divided and multiplied by it
    sizes: Tensor  # (n,) squared lengths of the samples: K's diagonal, with the ridge of the heaviest sample
    ridge: Tensor | None = None  # what the squared hinge adds to K's diagonal, one number or one a row

    @property
    def upper(self) -> float | Tensor:
        """The largest value of a multiplier; with sample weights of each, (n, 1)."""
        return float("inf") if self.squared else self.C

    def upper_for(self, a: Tensor) -> float | Tensor:
        """`upper` to go with multipliers of all problems, (n, k), or of one, (n,)."""
        upper = self.upper
        return upper[:, 0] if isinstance(upper, Tensor) and a.ndim == 1 else upper

    @property
    def num_classes(self) -> int:
        """Problems, one a column of Y."""
        return self.Y.shape[1]

    def clip(self, B: Tensor) -> Tensor:
        """The nearest B whose multipliers keep their bounds."""
        a, upper = self.Y * B, self.upper
        return self.Y * (a.clamp(min=0).minimum(upper) if isinstance(upper, Tensor) else a.clamp(0, upper))

    def of(self, classes: slice | Tensor) -> Dual:
        """The problems of some classes."""
        return replace(self, Y=self.Y[:, classes].contiguous())

    def single(self) -> Dual:
        """The same problems in float32, for what need not be exact."""
        C = self.C.float() if isinstance(self.C, Tensor) else self.C
        ridge = None if self.ridge is None else self.ridge.float()
        return replace(self, K=self.K.single(), Y=self.Y.float(), C=C, sizes=self.sizes.float(), ridge=ridge)

    def ridge_times(self, B: Tensor) -> Tensor | float:
        """What the ridge adds to decision values in K B."""
        return 0.0 if self.ridge is None else self.ridge[:, None] * B

    def gap(self, B: Tensor, F: Tensor) -> Tensor:
        """Primal minus dual objective of each class at feasible B, where F = K B; shape (k,).

        Summed sample by sample: no term is negative, so that nothing large cancels. Half the squared distance of the
        weights to the solution's is at most this.
        """
        a, m = self.Y * B, 1 - self.Y * F
        m = torch.where(m.abs() <= self.noise(B), 0.0, m)  # times a large C it would drown everything else
        if not self.squared:
            return torch.where(m > 0, (self.C - a) * m, -a * m).sum(0)
        inside = m + a / (2 * self.C)  # 1 - Y f, without the ridge
        return torch.where(inside > 0, self.C * m.square(), a * (a / (4 * self.C) - inside)).sum(0)

    def noise(self, B: Tensor) -> Tensor:
        """What rounding does to F = K B, by Cauchy-Schwarz; shape (n, k)."""
        length = self.sizes.sqrt()
        return 4 * torch.finfo(B.dtype).eps * length[:, None] * (length @ B.abs())

    def objective(self, B: Tensor, F: Tensor) -> Tensor:
        """The dual objective of each class, to be maximised; shape (k,)."""
        return (self.Y * B).sum(0) - (B * F).sum(0) / 2

    def allowed_gap(self, B: Tensor, F: Tensor, tol: float) -> Tensor:
        """The gap at which decision values are right to `tol`, or what float64 can tell from none; shape (k,)."""
        sharp = tol**2 / (2 * float(self.sizes.max()))
        return (1e-14 * self.objective(B, F)).clamp(min=sharp)


def make_dual(K: Kernel, Y: Tensor, C: float, *, squared: bool, sample_weight: Tensor | None = None) -> Dual:
    """The problems for a Gram matrix without bias; Y is +-1, weights are positive, shape (n,)."""
    unit = float(K.diagonal().mean()) + 1
    own: float | Tensor = C * unit
    if sample_weight is not None:
        own = own * sample_weight[:, None]
    sizes = (K.diagonal() + 1).div_(unit)
    ridge = None
    if squared:
        ridge = torch.as_tensor(1 / (2 * own), dtype=Y.dtype).flatten()  # one number, or one a row
        sizes += ridge.min()
    return Dual(K.with_bias(unit, ridge), Y, own, squared, unit, sizes, ridge)
