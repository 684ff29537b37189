r"""DropCov: covariance pooling that is regularized by adaptive channel dropout, in the place of a matrix function.

In training, channel weights w = softmax(conv(mu)) over neighbouring channels strengthen the features, x <- (1 + w) x,
then channels are dropped at the rate

.. math:: \rho = 1 - \frac{10}{\log_2 d} \, \cos(w, \Sigma 1), \qquad \text{clamped to } [0, 1]

averaged over the batch, each with all its locations, those that stay divided by 1 - rho. Afterwards it is
plain covariance pooling: neither weights nor dropout.

Reference: Wang et al., *DropCov: a simple yet effective method for improving deep architectures*, NeurIPS 2022, and the
authors' code (``ResNet_ACD.py``): 256 channels (``proj_dim=256``), the upper triangle, no normalization.

Legend: X features in columns (B, d, n), divided by sqrt(n); Sigma their covariance; w channel weights (B, d).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..linalg.autodiff import full_precision
from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd, expect_maps
from .average import average_pool
from .contract import Pooling
from .covariance import centred_columns

_KERNEL = 3  # neighbouring channels that a weight sees


def drop_rate(X: Tensor, w: Tensor) -> Tensor:
    """The share of channels to drop, one number per batch.

    Args:
        X: centred features in columns, divided by sqrt(n), shape (B, d, n).
        w: channel weights, shape (B, d).
    """
    sums = (X @ X.sum(-2)[..., None])[..., 0]  # (B, d), the rows of the covariance X X^T summed
    cosines = functional.cosine_similarity(w, sums, dim=-1)
    return (1 - 10 / math.log2(X.shape[-2]) * cosines.mean()).clamp(0, 1) if X.shape[-2] > 1 else cosines.new_zeros(())


class DropCovPool(Pooling):
    """Covariance pooling with adaptive channel dropout while it is trained."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((_KERNEL,), 1 / _KERNEL))

    def shape(self, *inputs: Shape) -> Spd:
        """The result is a d x d matrix for d channels."""
        (maps,) = expect_maps("dropcov", inputs, 1)
        return Spd(maps.channels)

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Factored:
        """Return X J without a ridge, shape (B, d, n)."""
        X = centred_columns("dropcov", features, layout=layout, mask=mask)
        if not self.training:
            return Factored(X, None)
        mu = average_pool(features, layout=layout, mask=mask)
        with full_precision(X):
            scores = functional.conv1d(mu[:, None], self.weight.to(X.dtype)[None, None], padding=_KERNEL // 2)
            w = scores[:, 0].softmax(-1)
            X = X * (1 + w)[..., None]
            rate = drop_rate(X.detach(), w.detach())
        kept = torch.rand(X.shape[:2], dtype=X.dtype, device=X.device) >= rate
        return Factored(X * (kept / (1 - rate).clamp_min(torch.finfo(X.dtype).eps))[..., None], None)
