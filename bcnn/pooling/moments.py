r"""The moment matrix: mean and second moments of the features in one matrix, which embeds a Gaussian.

.. math:: A = \frac1n \sum_i \begin{pmatrix} x_i \\ 1 \end{pmatrix} \begin{pmatrix} x_i^T & 1 \end{pmatrix} + \epsilon I
    = \begin{pmatrix} X X^T & \mu \\ \mu^T & 1 \end{pmatrix} + \epsilon I

References: Wang et al., *G2DeNet: global Gaussian distribution embedding network*, CVPR 2017; Gou et al., *MoNet:
moments embedding network*, CVPR 2018. Both take the signed square root of the features first, then the matrix square
root of A, then the entrywise one and l2 (the preset ``g2denet``); MoNet sketches the root in 10,000 numbers
(``monet``) and is G2DeNet where it does not. Without root and 1 it is the improved B-CNN ("MoNet-2"), without the
matrix root, too, the B-CNN ("MoNet-2U").

Departures: the ridge, 10^-3 of the trace by default as in bilinear pooling, where the originals leave out eigenvalues
below 10^-10 (``eps=0`` is theirs); the 1 stands last (G2DeNet), MoNet has it first.

Legend: X features in columns (B, d, n), divided by sqrt(n); mu their mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd, expect_maps
from .bilinear import DEFAULT_EPS
from .contract import Pooling
from .features import as_columns, check_eps, ridge_of

# Where the signed square root of the features turns linear, relative to their root mean square, as in `signed_sqrt`; a
# mean below the second number, next to the 1 of the moment matrix, counts as that much.
_DELTA = 1e-3
_LEAST_MEAN = 1e-4


class MomentPool(Pooling):
    """The moment matrix of the features, one larger than there are channels, not formed before somebody needs it.

    Args:
        eps: the ridge, in units of eps_scale; 0 for none.
        eps_scale: trace, largest or absolute, as in bilinear pooling.
        root: whether to take the signed square root of the features first.
    """

    def __init__(self, eps: float = DEFAULT_EPS, eps_scale: str = "trace", *, root: bool = True):
        super().__init__()
        check_eps("moments", eps, eps_scale)
        self.eps, self.eps_scale, self.root = float(eps), eps_scale, root

    def shape(self, *inputs: Shape) -> Spd:
        """The result is a matrix of d + 1 rows for d channels."""
        (maps,) = expect_maps("moments", inputs, 1)
        return Spd(maps.channels + 1)

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Factored:
        """X with the row of ones, and the ridge, shapes (B, d + 1, n) and (B,)."""
        X = as_columns("moment_pool", features, layout=layout, mask=mask)  # (B, d, n)
        if mask is None:
            share = X.new_full((X.shape[0], 1, X.shape[-1]), X.shape[-1] ** -0.5)
        else:
            valid = mask.flatten(1)[:, None, :].to(X.dtype)
            share = valid * valid.sum(-1, keepdim=True).clamp_min(1).rsqrt()
        if self.root:
            X = _root_of_features(X, share.amax(-1, keepdim=True))
        A = Factored(torch.cat([X, share], -2), None)
        return Factored(A.X, ridge_of(A, eps=self.eps, eps_scale=self.eps_scale))

    @property
    def has_ridge(self) -> bool:
        """Whether a ridge is added: it is, unless eps is 0."""
        return self.eps > 0

    def extra_repr(self) -> str:
        """Show every option."""
        return f"eps={self.eps:g}, eps_scale={self.eps_scale!r}, root={self.root}"


def _root_of_features(X: Tensor, share: Tensor) -> Tensor:
    """``root(x_i) / sqrt(n)`` from ``x_i / sqrt(n)``; `share` is 1 / sqrt(n), shape (B, 1, 1), or 0 for no location."""
    mean = (X.square().sum((-2, -1), keepdim=True) / X.shape[-2] + _LEAST_MEAN**2).sqrt()
    x = X / torch.where(share > 0, share, 1)
    return x * torch.hypot(x, _DELTA * mean).rsqrt() * share
