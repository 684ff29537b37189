r"""The matrix power as a tangent vector: a linear classifier after it is one in the tangent space at I.

.. math:: Z = \frac1\theta (A^\theta - I), \qquad Z \to \log A \text{ as } \theta \to 0

Reference: Chen et al., *Understanding matrix function normalizations in covariance pooling through the lens of
Riemannian geometry* (RiemGCP), ICLR 2025. Their classifiers are a linear one after a normalization: Pow-TMLR is this
part, ScalePow-EMLR this part with ``shift=False`` (A^theta / theta), Pow-EMLR is ``matrix_power(theta)``, with theta =
1/2; Cho-TMLR is ``cholesky_log``.

Legend: A symmetric positive definite matrices (..., d, d); theta an exponent.
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from ..linalg.operand import Factored
from ..matfun.functions.powm import powm
from ..parts.shapes import Shape, Spd, expect
from .contract import Normalization


def tangent_power(A: Tensor | Factored, theta: float = 0.5, *, shift: bool = True) -> Tensor:
    """``(A^theta - I) / theta``, or ``A^theta / theta`` without the shift.

    Args:
        A: symmetric positive definite matrices, shape (..., d, d), formed or not.
        theta: the exponent, not 0; below 10^-3 float32 loses digits, which the logarithm has. With the shift it loses
            them, too, where A is much smaller than I.
        shift: whether to take I away.

    Example:
        >>> import torch
        >>> tangent_power(torch.diag(torch.tensor([1.0, 4.0])))
        tensor([[0., 0.],
                [0., 2.]])
    """
    Z = powm(A, theta) / theta
    if shift:
        Z = Z - Z.new_ones(Z.shape[-1]).diag() / theta
    return Z


class TangentPower(Normalization):
    """`tangent_power` as a part.

    Args:
        theta: the exponent.
        shift: whether to take I away (Pow-TMLR) or not (ScalePow-EMLR).
    """

    takes: ClassVar[str] = "spd"

    def __init__(self, theta: float = 0.5, *, shift: bool = True):
        super().__init__()
        if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < abs(theta) <= 1:
            raise ValueError(
                f"tangent_power: expected `theta` in [-1, 1], not 0, got {theta!r}; its limit at 0 is matrix_log."
            )
        self.theta, self.shift = float(theta), shift

    def shape(self, given: Shape) -> Spd:
        """The result is a symmetric matrix of the same size."""
        return expect("tangent_power", Spd, given, "it follows bilinear or covariance pooling")

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Apply it to symmetric matrices (..., d, d)."""
        return tangent_power(A, self.theta, shift=self.shift)

    def extra_repr(self) -> str:
        """Show every option."""
        return f"theta={self.theta:g}, shift={self.shift}"
