r"""The signed power of every entry: the signed square root with another exponent.

References: Carreira et al., *Semantic segmentation with second-order pooling* (O2P), ECCV 2012, with p = 0.75 after the
matrix logarithm; Perronnin et al. 2010 for powers in general.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from .contract import Normalization

DEFAULT_POWER = 0.75
DEFAULT_DELTA = 1e-3
_LEAST_SIZE = 1e-15


def signed_power(
    x: Tensor, p: float = DEFAULT_POWER, *, delta: float = DEFAULT_DELTA, weights: Tensor | None = None
) -> Tensor:
    r"""Entrywise ``sign(x) |x|^p`` with a finite derivative at zero.

    .. math:: y_i = x_i (x_i^2 + \delta^2 m^2)^{(p - 1) / 2}, \qquad m^2 = \text{mean of } x_i^2

    which is `bcnn.signed_sqrt` for p = 1/2, smoothed in the same way, and x for p = 1.

    Args:
        x: descriptors, shape (..., m); a matrix is to be flattened first.
        p: the exponent, in (0, 1].
        delta: where the power turns linear, relative to the root mean square of the descriptor; > 0.
        weights: counts each square so many times; the multiplicities of a triangle.
    """
    if not x.shape[-1]:
        return x
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    size = wide.detach().abs().amax(-1, keepdim=True).clamp_min(_LEAST_SIZE)
    unit = wide / size  # no square overflows
    squares = unit.square() if weights is None else unit.square() * weights
    count = x.shape[-1] if weights is None else weights.sum()
    mean = (squares.sum(-1, keepdim=True) / count + _LEAST_SIZE**2).sqrt()
    return (unit * torch.hypot(unit, delta * mean) ** (p - 1) * size**p).to(x.dtype)


class SignedPower(Normalization):
    """`signed_power` as a part.

    Args:
        p: the exponent; 0.75 is that of O2P, after the logarithm.
        delta: where the power turns linear, relative to the root mean square of the descriptor.
    """

    weighted: ClassVar[bool] = True

    def __init__(self, p: float = DEFAULT_POWER, delta: float = DEFAULT_DELTA):
        super().__init__()
        for name, value, most in (("p", p, 1.0), ("delta", delta, float("inf"))):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
                raise ValueError(f"signed_power: expected `{name}` to be a number in (0, {most:g}], got {value!r}.")
        self.p, self.delta = float(p), float(delta)

    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Apply it to descriptors (..., m)."""
        return signed_power(x, self.p, delta=self.delta, weights=weights)

    def extra_repr(self) -> str:
        """Show every option."""
        return f"p={self.p:g}, delta={self.delta:g}"
