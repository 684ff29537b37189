r"""Average pooling: the first-order baseline.

Paper: not in it; the usual alternative to Eq. (1).
"""

from __future__ import annotations

from torch import Tensor

from ..parts.shapes import Shape, Vector, expect_maps
from .contract import Pooling
from .features import as_columns


def average_pool(features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
    r"""The mean feature of each image, :math:`\frac1n \sum_i x_i`.

    Args:
        features: (B, C, H, W), (B, C, L), or (B, N, C) with layout="tokens".
        layout: "maps" or "tokens".
        mask: True where a location is valid, shape (B, H, W), (B, L) or (B, N).

    Returns:
        Shape (B, C), float32 or float64.

    Example:
        >>> import torch
        >>> average_pool(torch.tensor([[[1.0, 2.0, 4.0, 9.0]]]))
        tensor([[4.]])
    """
    X = as_columns("average_pool", features, layout=layout, mask=mask, squares=False)  # divided by sqrt(n)
    num_valid = X.new_full((X.shape[0],), X.shape[-1]) if mask is None else mask.flatten(1).sum(-1).clamp_min(1).to(X)
    return X.sum(-1) * num_valid.rsqrt()[:, None]


class AveragePool(Pooling):
    """The function `average_pool` as a part."""

    def shape(self, *inputs: Shape) -> Vector:
        """The result has one number per channel."""
        (maps,) = expect_maps("average", inputs, 1)
        return Vector(maps.channels)

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """Return the mean feature, shape (B, C)."""
        return average_pool(features, layout=layout, mask=mask)
