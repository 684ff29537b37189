r"""Powers of the singular values: what a matrix function is where the matrix is not symmetric.

.. math:: A^{(p)} = U S^p V^T \quad \text{of} \quad A = U S V^T

For a symmetric positive semi-definite matrix it is A^p; with p = 1/2 it is the matrix normalization of a B-CNN with two
networks. It is computed as :math:`A (A^T A + \delta^2 m^2 I)^{(p - 1) / 2}`, which leaves singular values of mean
size alone and has a derivative everywhere, where U S^p V^T has none at a singular value of 0 and, by way of the
decomposition, none at equal ones.

References: Lin & Maji 2017 for the symmetric one; Xie et al., *So-ViT*, 2021, for singular values.

Legend: A matrices (..., d, e); S singular values; m their root mean square.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..linalg.autodiff import full_precision
from ..linalg.operand import Factored, formed
from ..linalg.spectrum import widest
from ..matfun.functions.powm import powm
from ..parts.shapes import Matrix, Shape, expect
from .contract import Normalization

DEFAULT_DELTA = 1e-3
_LEAST_MEAN = 1e-15


def singular_power(A: Tensor, p: float = 0.5, *, delta: float = DEFAULT_DELTA) -> Tensor:
    r"""``U S^p V^T``, differentiable.

    A singular value s becomes :math:`s (s^2 + \delta^2 m^2)^{(p - 1) / 2}`, which differs from s^p by the relative
    amount (1 - p) (delta m / s)^2 / 2.

    Cost: an eigendecomposition in float64 of the smaller of A^T A and A A^T.

    Args:
        A: shape (..., d, e).
        p: the exponent, in (0, 1].
        delta: below which share of their root mean square singular values grow no more; > 0.

    Example:
        >>> singular_power(torch.tensor([[0.0, -4.0], [9.0, 0.0]])).round(decimals=3)
        tensor([[ 0., -2.],
                [ 3.,  0.]])
    """
    with full_precision(A):
        tall = A.to(widest(A)) if A.shape[-2] >= A.shape[-1] else A.mT.to(widest(A))
        size = tall.detach().abs().amax((-2, -1), keepdim=True).clamp_min(_LEAST_MEAN)
        tall = tall / size  # no square overflows
        e = tall.shape[-1]
        ridge = (delta**2 * (tall.square().sum((-2, -1)) / e)).clamp_min(delta**2 * 1e-30)
        G = tall.mT @ tall + ridge[..., None, None] * torch.eye(e, dtype=tall.dtype, device=tall.device)
        Z = tall @ powm(G, (p - 1) / 2) * size**p
    return (Z if A.shape[-2] >= A.shape[-1] else Z.mT).to(A.dtype)


class SingularPower(Normalization):
    """`singular_power` as a part, for the matrix of two networks.

    Args:
        p: the exponent of the singular values.
        delta: below which share of their root mean square singular values grow no more.
    """

    takes: ClassVar[str] = "spd"

    def __init__(self, p: float = 0.5, delta: float = DEFAULT_DELTA):
        super().__init__()
        for name, value, most in (("p", p, 1.0), ("delta", delta, float("inf"))):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                raise ValueError(f"singular_power: expected `{name}` to be a number in (0, {most:g}], got {value!r}.")
        self.p, self.delta = float(p), float(delta)

    def shape(self, given: Shape) -> Matrix:
        """The result is a matrix of the same size."""
        remedy = "a symmetric matrix has matrix_sqrt and matrix_power, and this one follows asymmetric pooling"
        return expect("singular_power", Matrix, given, remedy)

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Apply it to matrices (..., d, e)."""
        return singular_power(formed(A), self.p, delta=self.delta)

    def extra_repr(self) -> str:
        """Show every option."""
        return f"p={self.p:g}, delta={self.delta:g}"
