r"""The matrix square root, Z Z = A.

Paper: Sec. 2.1 and 2.2, g(sigma) = sqrt(sigma), Eq. (4) for g'.

Legend: A symmetric positive semi-definite matrices (..., d, d); Z = A^{1/2}; sigma eigenvalues of A.
"""

from __future__ import annotations

import math
from typing import Any, Literal, overload

import torch
from torch import Tensor

from ...linalg.lyapunov import reciprocal_sums
from ...linalg.operand import Factored
from ...linalg.spectrum import NULL_UNITS
from ..compose import MatrixFunctionInfo, matrix_function
from ..contract import SpectralFunction


def _divided_difference(sigma: Tensor, _p: Tensor | None, eps: float) -> Tensor:
    # (sqrt(a) - sqrt(b)) / (a - b) = 1 / (sqrt(a) + sqrt(b)); infinite between two null vectors, where it is set to 0.
    return reciprocal_sums(sigma.sqrt(), null=math.sqrt(NULL_UNITS * eps))


SQRT = SpectralFunction(
    name="sqrt",
    wrapper="sqrtm",
    g=lambda sigma, _p: sigma.sqrt(),
    dg=lambda sigma, _p: 0.5 / sigma.sqrt(),  # Eq. (4)
    divided_difference=_divided_difference,
    floor=lambda sigma, _p, _eps: torch.zeros_like(sigma[..., :1]),
    inverse=lambda Z, _p: Z @ Z,
    euler=lambda Z, _p: Z / 2,
)


@overload
def sqrtm(A: Tensor | Factored, *, return_info: Literal[True], **options: Any) -> tuple[Tensor, MatrixFunctionInfo]: ...
@overload
def sqrtm(A: Tensor | Factored, *, return_info: Literal[False] = ..., **options: Any) -> Tensor: ...
def sqrtm(
    A: Tensor | Factored,
    *,
    forward: str = "auto",
    backward: str = "auto",
    check: bool | None = None,
    return_info: bool = False,
    **options: Any,
) -> Tensor | tuple[Tensor, MatrixFunctionInfo]:
    r"""Square root of symmetric positive semi-definite matrices, differentiable.

    .. math:: Z = A^{1/2} = U \Sigma^{1/2} U^T

    Paper: Sec. 2.2; accuracy and time of the methods in Table 3.
    Valid: any symmetric positive semi-definite A; the symmetric part of A is what counts. Zero eigenvalues are allowed:
    the derivative, infinite between two null vectors, is taken as zero there (no feature matrix X with A = X X^T / n
    can see that part). Below four rounding units of the precision it is computed in (float32 for half precision) times
    the largest, an eigenvalue counts as zero for the derivative: with condition numbers beyond 2e6 pass float64, or
    raise `eps`. Right to every order with ``backward="lyapunov"``, the default, and with ``"unrolled"`` in float64; in
    float32 the second derivative of the steps of "minimax", which rounding spoils, is refused.
    Cost: one eigh in float64 and one product forward, four products backward, by default on a CPU; products alone on
    a GPU. ``precision="fast"`` takes eigh in the precision of A: two thirds of the time, and three digits fewer.

    Args:
        A: symmetric positive semi-definite matrices, shape (..., d, d). bfloat16 and float16 are computed in float32.
            Or a `Factored` one, X X^T + ridge I that is not formed: fewer locations than channels save time then.
        forward: a name of `FORWARDS` (``bcnn methods`` lists them); "auto" is "eigen" on a CPU, "minimax" elsewhere.
        backward: a name of `BACKWARDS`; "auto" is "lyapunov".
        check: whether to look for non-finite, asymmetric and indefinite input; None does so on a CPU, where it is
            nearly free, and not where it would make a GPU wait. Never under `torch.compile`.
        return_info: return ``(Z, info)`` with the residual ||A - Z Z|| / ||A|| and the number of steps.
        **options: those of the two methods, for example ``precision="fast"`` for "eigen" (float32 inside),
            ``num_iters=5`` or ``tol=1e-5`` for the iterations, ``solver="iterative"`` for "lyapunov".

    Returns:
        Z of the shape, dtype and device of A.

    Raises:
        ValueError: wrong shape, non-finite or asymmetric input, unknown method, pair or option.
        NotPositiveDefiniteError: A has a negative eigenvalue.

    Example:
        >>> import torch
        >>> A = torch.tensor([[5.0, 4.0], [4.0, 5.0]])
        >>> sqrtm(A).round(decimals=4)
        tensor([[2., 1.],
                [1., 2.]])
    """
    return matrix_function(
        SQRT, A, None, forward=forward, backward=backward, check=check, return_info=return_info, **options
    )
