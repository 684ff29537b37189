r"""Symmetric bilinear pooling, the second-order statistics of one feature map.

Paper: Eq. (1), Sec. 2.1.

Legend: X features in columns (B, d, n), divided by sqrt(n); A pooled matrix (B, d, d).
"""

from __future__ import annotations

from torch import Tensor

from ..linalg.autodiff import full_precision
from ..linalg.products import symmetric_product
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
    return pooled_matrix(*bilinear_factor(features, eps=eps, eps_scale=eps_scale, layout=layout, mask=mask))


def bilinear_factor(
    features: Tensor, *, eps: float, eps_scale: str, layout: str = "maps", mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """X and the ridge of Eq. (1), shapes (B, d, n) and (B,): A is X X^T + ridge I."""
    check_eps("bilinear_pool", eps, eps_scale)
    X = as_columns("bilinear_pool", features, layout=layout, mask=mask)
    return X, ridge_of(X, eps=eps, eps_scale=eps_scale)


def pooled_matrix(X: Tensor, ridge: Tensor) -> Tensor:
    """``X X^T + ridge I``, shape (B, d, d)."""
    with full_precision(X):
        A = symmetric_product(X, X.mT)
        A.diagonal(dim1=-2, dim2=-1).add_(ridge[..., None])
    return A
