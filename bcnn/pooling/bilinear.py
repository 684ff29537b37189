r"""Symmetric bilinear pooling, the second-order statistics of one feature map.

Paper: Eq. (1), Sec. 2.1.

Legend: X features in columns (B, d, n), divided by sqrt(n); A pooled matrix (B, d, d).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..linalg.operand import Decomposed, Factored
from ..parts.shapes import Shape, Spd, expect_maps
from .contract import Pooling
from .features import as_columns, check_eps, ridge_of

# Relative to the trace; how it was chosen: docs/pooling.md, "The ridge".
DEFAULT_EPS = 1e-3


def bilinear_pool(
    features: Tensor,
    *,
    eps: float = DEFAULT_EPS,
    eps_scale: str = "trace",
    layout: str = "maps",
    mask: Tensor | None = None,
) -> Tensor:
    r"""The pooled matrix A of each image, ready for a matrix function.

    .. math:: A = \frac1n \sum_{i=1}^n x_i x_i^T + \epsilon I

    Paper: Eq. (1). There epsilon is 1 for features whose largest eigenvalue is about 10^6 (Sec. 3.2). Other weights
    have other scales, so by default epsilon counts relative to tr(X X^T) (see `ridge_of`);
    ``eps=1e-6, eps_scale="largest"`` is the paper's in units that fit all weights, ``eps=1, eps_scale="absolute"`` to
    the letter.
    Valid: any features; half precision and autocast are computed in float32.
    Cost: one product, 2 n d^2 operations (5/8 of it for large d without a graph).

    Args:
        features: (B, C, H, W), (B, C, L), or (B, N, C) with layout="tokens".
        eps: the ridge; 0 for none.
        eps_scale: "trace", "largest" or "absolute".
        layout: "maps" or "tokens".
        mask: True where a location is valid, shape (B, H, W), (B, L) or (B, N).

    Returns:
        A, shape (B, C, C), float32 or float64.

    Example:
        >>> import torch
        >>> bilinear_pool(torch.ones(1, 2, 3, 3), eps=1.0, eps_scale="absolute")
        tensor([[[2., 1.],
                 [1., 2.]]])
    """
    return BilinearPool(eps=eps, eps_scale=eps_scale).forward(features, layout=layout, mask=mask).form()


class BilinearPool(Pooling):
    """Eq. (1) as a part: A is X X^T + ridge I, not formed before somebody needs it.

    Args:
        eps: the ridge, in units of eps_scale; 0 for none.
        eps_scale: trace (relative to the mean squared length of the features), largest (relative to the largest
            eigenvalue; the paper's ridge is 1e-6 of it) or absolute (the paper's to the letter, for features like its).
    """

    def __init__(self, eps: float = DEFAULT_EPS, eps_scale: str = "trace"):
        super().__init__()
        check_eps("bilinear_pool", eps, eps_scale)
        self.eps, self.eps_scale = float(eps), eps_scale

    def shape(self, *inputs: Shape) -> Spd:
        """The result is a d x d matrix for d channels."""
        (maps,) = expect_maps("bilinear", inputs, 1)
        return Spd(maps.channels)

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Factored:
        """Return X and the ridge, shapes (B, d, n) and (B,)."""
        A = Factored(as_columns("bilinear_pool", features, layout=layout, mask=mask), None)
        ridge = ridge_of(A, eps=self.eps, eps_scale=self.eps_scale)
        return Factored(A.X, ridge, self.least_eigenvalue(A.X.shape[-2]))

    def least_eigenvalue(self, d: int) -> float | None:
        r"""A bound of the least eigenvalue of A over its Frobenius norm, if the ridge gives one.

        With t the mean squared length of the features, A = B + eps t I and ||B||_F <= tr B = t, so that
        :math:`\lambda_{min} / \|A\|_F \ge \epsilon / (1 + \epsilon \sqrt d)`.
        """
        if self.eps_scale != "trace" or not self.eps:
            return None
        return self.eps / (1 + self.eps * math.sqrt(d))

    @property
    def has_ridge(self) -> bool:
        """Whether a ridge is added: it is, unless eps is 0."""
        return self.eps > 0

    @property
    def stored_as(self) -> str:
        """What is stored on disk: the matrix without a ridge, which serves every ridge."""
        return "bilinear(eps=0)"

    def complete(self, pooled: Tensor) -> Tensor:
        """Make A from the stored X X^T, shape (B, d, d)."""
        ridge = ridge_of(pooled, eps=self.eps, eps_scale=self.eps_scale)
        if ridge is None:
            return pooled
        A = pooled.clone()
        A.diagonal(dim1=-2, dim2=-1).add_(ridge[:, None])
        return A

    def complete_decomposed(self, pooled: Decomposed) -> Decomposed:
        """The same for a stored X X^T that is decomposed: a ridge moves eigenvalues and leaves eigenvectors alone."""
        ridge = ridge_of(torch.diag_embed(pooled.sigma), eps=self.eps, eps_scale=self.eps_scale)
        return pooled if ridge is None else pooled._replace(sigma=pooled.sigma + ridge[:, None])

    def extra_repr(self) -> str:
        return f"eps={self.eps:g}, eps_scale={self.eps_scale!r}"
