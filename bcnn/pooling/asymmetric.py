r"""Bilinear pooling of two different feature maps.

Paper: Sec. 2.1, "the locationwise outer-product of two features"; the B-CNNs of Lin et al. 2015 with two networks.

Legend: X, Y features in columns (B, d, n) and (B, e, n), each divided by sqrt(n).
"""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import interpolate

from ..linalg.autodiff import full_precision
from ..parts.shapes import Matrix, Shape, expect_maps
from .contract import Pooling
from .features import as_columns, check_features, grid_of

_MODES = {1: "linear", 2: "bilinear", 3: "trilinear"}


def asymmetric_pool(features: Tensor, other: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
    r"""The mean outer product of two features, location by location.

    .. math:: A = \frac1n \sum_{i=1}^n x_i y_i^T

    Paper: Sec. 2.1. The matrix is neither symmetric nor square: no ridge, no matrix function.
    Valid: maps of different sizes: `other` is resized to the grid of `features` by (bi)linear interpolation.
    Cost: one product.

    Args:
        features: (B, C, H, W), (B, C, L), or (B, N, C) with layout="tokens".
        other: the second features of the same images, with as many dimensions.
        layout: "maps" or "tokens"; tokens are not resized.
        mask: True where a location of `features` is valid.

    Returns:
        A, shape (B, C, C'), float32 or float64.
    """
    who = "asymmetric_pool"
    check_features(who, features, layout)
    check_features(who, other, layout)
    if features.ndim != other.ndim or features.shape[0] != other.shape[0]:
        raise ValueError(
            f"{who}: expected two features of the same images, got {tuple(features.shape)} and {tuple(other.shape)}."
        )
    grid = grid_of(features, layout)
    if grid_of(other, layout) != grid:
        if layout == "tokens" or len(grid) not in _MODES:
            raise ValueError(
                f"{who}: expected as many locations in both, got {tuple(features.shape)} and {tuple(other.shape)}; "
                "only maps of one to three dimensions are resized."
            )
        other = interpolate(other, size=tuple(grid), mode=_MODES[len(grid)], align_corners=False)
    X = as_columns(who, features, layout=layout, mask=mask)
    Y = as_columns(who, other, layout=layout, mask=mask)
    with full_precision(X):
        return X @ Y.mT.to(X.dtype)


class AsymmetricPool(Pooling):
    """The function `asymmetric_pool` as a part."""

    num_inputs: ClassVar[int] = 2

    def shape(self, *inputs: Shape) -> Matrix:
        """A row per channel of the first network, a column per channel of the second."""
        first, second = expect_maps("asymmetric", inputs, 2)
        return Matrix(first.channels, second.channels)

    def forward(self, features: Tensor, other: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """Return the mean outer product, shape (B, C, C')."""
        return asymmetric_pool(features, other, layout=layout, mask=mask)
