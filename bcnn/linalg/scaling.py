r"""Upper bounds of the largest eigenvalue, by which the local iterations are scaled.

Paper: Sec. 2.2, "one can scale the matrix A = alpha A". Both bounds hold for positive semi-definite matrices, and both
are safe for a zero matrix (bound 1, gradient 0) and wherever the bound itself is a floating-point number.

Legend: A positive semi-definite matrices (..., d, d); s their bound (..., 1, 1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def norm(A: Tensor) -> Tensor:
    """``||A||_F``, shape (..., 1, 1), without squaring entries that would overflow or underflow."""
    if A.requires_grad and torch.is_grad_enabled():  # torch's own norm fails in the third derivative
        size = _nonzero(A.detach().abs().amax((-2, -1), keepdim=True))
        squares = (A / size).square().sum((-2, -1), keepdim=True)
        return torch.where(squares > 0, _nonzero(squares).sqrt(), torch.zeros_like(squares)) * size
    if A.dtype == torch.float32 and A.device.type != "mps":  # its squares and their sum fit into float64
        total: Tensor = torch.linalg.vector_norm(A, dim=(-2, -1), keepdim=True, dtype=torch.float64)
        return total.to(A.dtype)
    size = _nonzero(A.detach().abs().amax((-2, -1), keepdim=True))
    share: Tensor = torch.linalg.matrix_norm(A / size, keepdim=True)
    return share * size


def frobenius(A: Tensor) -> Tensor:
    """``||A||_F``, and 1 for a zero matrix."""
    return _nonzero(norm(A))


def trace(A: Tensor) -> Tensor:
    """``tr A``, as in iSQRT-COV; larger than the Frobenius norm, so small eigenvalues start further away."""
    return _nonzero(A.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None])


class Scale(NamedTuple):
    """A bound on the spectrum, and its derivative."""

    value: Callable[[Tensor], Tensor]  # s(A), (..., 1, 1)
    gradient: Callable[[Tensor], Tensor]  # ds/dA, (..., d, d) or broadcasting to it


SCALES = {
    "frobenius": Scale(frobenius, lambda A: A / frobenius(A)),
    "trace": Scale(trace, lambda A: torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)),
}
DEFAULT_SCALE = "frobenius"


def scale_of(A: Tensor, scale: str | Tensor) -> Tensor:
    """The bound by name, or the one given as a tensor of shape (..., 1, 1), which is a constant to the gradient."""
    return scale.detach() if isinstance(scale, Tensor) else SCALES[scale].value(A)


def scale_gradient(A: Tensor, scale: str) -> Tensor:
    """ds/dA, shape (..., d, d); zero for a zero matrix."""
    alive = (A != 0).any(-1).any(-1)[..., None, None]
    return alive * SCALES[scale].gradient(A)


def _nonzero(s: Tensor) -> Tensor:
    return torch.where(s > 0, s, torch.ones_like(s))
