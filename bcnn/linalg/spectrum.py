r"""Batched spectral decompositions that never fail in silence.

Paper: Sec. 2.2, ``A = U Sigma U^T``.

Legend: A symmetric matrices (..., d, d); U eigenvectors in columns (..., d, d); sigma eigenvalues (..., d).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import ConvergenceError, PrecisionFallbackWarning
from .parallel import side_by_side
from .products import symmetric_product

# Eigenvalues below this many rounding units of A times the largest are noise: on features of rank below d, up to 1.0
# units were measured in float32 (d up to 1024) and 2.5 in float64, where one and the same matrix has more or less of it
# from run to run. With the paper's condition number, 10^6, the least eigenvalue is 8 units of float32.
NULL_UNITS = 4.0


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices: ``(sigma, U)``.

    As `torch.linalg.eigh`, but a float32 decomposition that does not converge is repeated in float64 with a warning.
    """
    sigma, U = _decompose(torch.linalg.eigh, A, ranks=(1, 2))
    return sigma, U


def svd(A: Tensor) -> tuple[Tensor, Tensor]:
    """Signed singular values and left singular vectors of symmetric matrices: ``(sigma, U)`` with A = U sigma U^T.

    A positive eigenvalue has u_i . v_i = 1, a negative one -1; where both signs share a singular value the vectors mix,
    and at least one product is not above 1/2. So an indefinite matrix has a negative sigma.
    """
    U, S, Vh = _decompose(torch.linalg.svd, A, ranks=(2, 1, 2))
    sign = torch.where((U * Vh.mT).sum(-2) > 0.5, 1.0, -1.0)
    return S * sign, U


def widest(A: Tensor) -> torch.dtype:
    """The precision for spectra: float64, and A's own on devices that have none (MPS)."""
    return A.dtype if A.device.type == "mps" else torch.float64


def compose(U: Tensor, values: Tensor) -> Tensor:
    """``U diag(values) U^T``, in the precision of `U`."""
    return symmetric_product(U * values.to(U.dtype)[..., None, :], U.mT)


def weigh_in_basis(U: Tensor, Q: Tensor, K: Tensor) -> Tensor:
    """``U (K * (U^T Q U)) U^T``, entry by entry, for symmetric Q and K: the derivative of a spectral function.

    Four products, two of them with a symmetric result. Records no gradient.
    """
    inner = symmetric_product(U.mT, Q @ U)
    return symmetric_product(U, inner.mul_(K) @ U.mT)


def _decompose(op: Callable[..., Any], A: Tensor, *, ranks: tuple[int, ...]) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        return tuple(op(A))
    if A.device.type == "mps":  # it has neither float64 nor decompositions; untested
        return tuple(part.to(A) for part in _decompose(op, A.cpu().double(), ranks=ranks))
    try:
        return side_by_side(op, A, ranks=ranks)
    except torch.linalg.LinAlgError as error:
        name = getattr(op, "__name__", "decomposition").removeprefix("linalg_")
        if A.dtype == torch.float64:
            raise ConvergenceError(
                f"{name}: did not converge in float64 on a batch of shape {tuple(A.shape)}; "
                "expected finite entries: call with check=True to find the matrix."
            ) from error
        warnings.warn(
            f"{name} did not converge in {A.dtype} on a batch of shape {tuple(A.shape)}; repeated in float64.",
            PrecisionFallbackWarning,
            stacklevel=2,
        )
    return tuple(part.to(A.dtype) for part in _decompose(op, A.double(), ranks=ranks))
