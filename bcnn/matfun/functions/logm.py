r"""The matrix logarithm, exp(Z) = A.

Paper: Sec. 2.1, log(A) of O2P; Sec. 3.5 reports that fine-tuning through it with SVD gradients failed even in
double precision. With divided differences that never divide by a difference it is as trainable as the square root.

Legend: A symmetric positive definite matrices (..., d, d); Z = log(A); sigma eigenvalues of A.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from ...linalg.operand import Factored
from ..compose import MatrixFunctionInfo, matrix_function
from ..contract import SpectralFunction

TINY = 1e-30


def _divided_difference(sigma: Tensor, _p: Tensor | None, _eps: float) -> Tensor:
    # With t = log a - log b: a - b = 2 sqrt(ab) sinh(t/2), so (log a - log b) / (a - b) = (t/2) / sinh(t/2) / sqrt(ab).
    # Rounding in t costs only as much as itself: the function is smooth and flat at t = 0, where it is 1.
    root, half = sigma.sqrt(), sigma.log() / 2
    t = (half[..., :, None] - half[..., None, :]).abs_().clamp_min_(TINY)  # TINY / sinh(TINY) is 1
    return t.div_(t.sinh()).div_(root[..., :, None] * root[..., None, :])


def positive_floor(sigma: Tensor, _p: Tensor | None, eps: float) -> Tensor:
    """The least eigenvalue that can be told from zero next to the largest one, in the precision of A."""
    return (eps * sigma.amax(-1, keepdim=True)).clamp_min(torch.finfo(sigma.dtype).tiny)


LOG = SpectralFunction(
    name="log",
    wrapper="logm",
    g=lambda sigma, _p: sigma.log(),
    dg=lambda sigma, _p: 1 / sigma,
    divided_difference=_divided_difference,
    floor=positive_floor,
    inverse=lambda Z, _p: torch.linalg.matrix_exp(Z),
    euler=lambda Z, _p: torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device),
)


@overload
def logm(A: Tensor | Factored, *, return_info: Literal[True], **options: Any) -> tuple[Tensor, MatrixFunctionInfo]: ...
@overload
def logm(A: Tensor | Factored, *, return_info: Literal[False] = ..., **options: Any) -> Tensor: ...
def logm(
    A: Tensor | Factored,
    *,
    forward: str = "auto",
    backward: str = "auto",
    check: bool | None = None,
    return_info: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, MatrixFunctionInfo]:
    r"""Logarithm of symmetric positive definite matrices, differentiable.

    .. math:: Z = \log(A) = U \log(\Sigma) U^T

    Paper: Sec. 2.1 and the end of Sec. 2.2; accuracy in Table 1.
    Valid: positive definite A. Eigenvalues below the rounding of A (one unit of its dtype, of float32 for half
    precision, times the largest) are raised to it by "eigen" and "svd", with one warning that counts them; a zero or
    indefinite matrix is an error.
    Cost: one eigh in float64 and one product forward, four products backward.

    Args:
        A: symmetric positive definite matrices, shape (..., d, d).
        forward: "auto" (= "eigen"), "svd", "inverse_scaling_squaring".
        backward: "auto" (= "loewner"), or another name of `BACKWARDS`.
        check, return_info, options: as in `sqrtm`; the residual is `||A - exp(Z)|| / ||A||`.

    Returns:
        Z of the shape, dtype and device of A.

    Example:
        >>> import torch
        >>> logm(torch.eye(2) * torch.e).diagonal().round(decimals=4)
        tensor([1., 1.])
    """
    return matrix_function(
        LOG, A, None, forward=forward, backward=backward, check=check, return_info=return_info, **options
    )
