r"""Matrix powers A^p, with an exponent that can be learned.

Paper: Sec. 2.1 and Figure 2 (accuracy against p; p = 1/2 is best, p = 1 the plain B-CNN).

Legend: A symmetric positive semi-definite matrices (..., d, d); Z = A^p; sigma eigenvalues of A; p exponents (...).
"""

from __future__ import annotations

from typing import Any, Literal, overload

import torch
from torch import Tensor

from ...linalg import spectrum
from ...linalg.autodiff import may_branch
from ...linalg.operand import Factored
from ...linalg.spectrum import NULL_UNITS
from ..compose import MatrixFunctionInfo, matrix_function
from ..contract import SpectralFunction
from .logm import TINY, positive_floor


def _column(p: Tensor | None) -> Tensor:
    assert p is not None
    return p[..., None]


def _g(sigma: Tensor, p: Tensor | None) -> Tensor:
    return sigma ** _column(p)


def _dg(sigma: Tensor, p: Tensor | None) -> Tensor:
    return _column(p) * sigma ** (_column(p) - 1)


def _dg_dp(sigma: Tensor, p: Tensor) -> Tensor:
    return torch.where(sigma > 0, _g(sigma, p) * sigma.log(), torch.zeros_like(sigma))


def _divided_difference(sigma: Tensor, p: Tensor | None, eps: float) -> Tensor:
    # With t = |log a - log b| and a the larger of the two: (a^p - b^p) / (a - b) = a^(p-1) (1 - e^(-pt)) / (1 - e^(-t))
    # for p > 0 and b^p / a times the same of -p, with the sign turned, for p < 0; p where t = 0.
    q = _column(p)[..., None]
    log = sigma.clamp_min(torch.finfo(sigma.dtype).tiny).log()
    t = (log[..., :, None] - log[..., None, :]).abs_().clamp_min_(TINY)
    K = (-q.abs() * t).expm1_().div_(t.neg_().expm1_())
    larger, smaller = (own(log[..., :, None], log[..., None, :]) for own in (torch.maximum, torch.minimum))
    K = K * q.sign() * torch.where(q < 0, q * smaller - larger, (q - 1) * larger).exp_()
    null = NULL_UNITS * eps * sigma.amax(-1, keepdim=True)
    if may_branch(sigma) and bool((sigma > null).all()):
        return K
    # Against an eigenvalue of exactly zero nothing cancels. Between two null vectors p < 1 is infinite: set to 0.
    high = torch.maximum(sigma[..., :, None], sigma[..., None, :])
    low = torch.minimum(sigma[..., :, None], sigma[..., None, :])
    K = torch.where((low == 0) & (high > 0), (high**q - low**q) / high, K)
    K = torch.where(high == 0, (q == 1).to(K), K)
    return torch.where((high <= null[..., None]) & (q < 1), torch.zeros_like(K), K)


def _floor(sigma: Tensor, p: Tensor | None, eps: float) -> Tensor:
    return torch.where(_column(p) < 0, positive_floor(sigma, p, eps), torch.zeros_like(sigma[..., :1]))


def _inverse(Z: Tensor, p: Tensor | None) -> Tensor:
    # A^0 = I has no inverse: 1/p is infinite there, and the residual says so.
    sigma, U = spectrum.eigh(Z)
    return spectrum.compose(U, sigma.clamp_min(0) ** (1 / _column(p)))


def _euler(Z: Tensor, p: Tensor | None) -> Tensor:
    return _column(p)[..., None] * Z


POWER = SpectralFunction(
    name="power",
    wrapper="powm",
    g=_g,
    dg=_dg,
    divided_difference=_divided_difference,
    floor=_floor,
    inverse=_inverse,
    euler=_euler,
    dg_dp=_dg_dp,
)


@overload
def powm(
    A: Tensor | Factored, p: float | Tensor, *, return_info: Literal[True], **options: Any
) -> tuple[Tensor, MatrixFunctionInfo]: ...
@overload
def powm(A: Tensor | Factored, p: float | Tensor, *, return_info: Literal[False] = ..., **options: Any) -> Tensor: ...
def powm(
    A: Tensor | Factored,
    p: float | Tensor,
    *,
    forward: str = "auto",
    backward: str = "auto",
    check: bool | None = None,
    return_info: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, MatrixFunctionInfo]:
    r"""Real power of symmetric positive semi-definite matrices, differentiable in A and in p.

    .. math:: Z = A^p = U \Sigma^p U^T, \qquad \frac{\partial L}{\partial p} =
        \Big\langle \frac{\partial L}{\partial Z},\; U \Sigma^p \log(\Sigma) U^T \Big\rangle

    Paper: Sec. 2.1, Figure 2.
    Valid: semi-definite A for p >= 0, definite A for p < 0 (eigenvalues below the rounding of A are raised to it, with
    one warning). 0^p log 0 counts as 0; between two null vectors (as in `sqrtm`) the infinite derivative of p < 1
    counts as 0.
    Cost: one eigh in float64 and one product forward, four products backward, one more for the gradient of p.

    Args:
        A: symmetric positive semi-definite matrices, shape (..., d, d).
        p: the exponent: a number, or a tensor that broadcasts with the leading dimensions of A.
        forward: "auto" (= "eigen") or "svd".
        backward: "auto" (= "loewner"), or another name of `BACKWARDS`.
        check, return_info, options: as in `sqrtm`; the residual `||A - Z^(1/p)|| / ||A||` says nothing for p near 0.

    Returns:
        Z of the dtype and device of A, shape (..., d, d).

    Example:
        >>> import torch
        >>> powm(torch.eye(2) * 8, 1 / 3)
        tensor([[2., 0.],
                [0., 2.]])
    """
    return matrix_function(
        POWER, A, p, forward=forward, backward=backward, check=check, return_info=return_info, **options
    )
