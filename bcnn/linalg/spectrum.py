r"""Batched spectral decompositions that never fail in silence.

Paper: Sec. 2.2, ``A = U Sigma U^T``.

Legend: A symmetric matrices (..., d, d); U eigenvectors in columns (..., d, d); sigma eigenvalues (..., d).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from ..errors import ConvergenceError, PrecisionFallbackWarning

# Below this size a LAPACK call is too short to be worth a thread.
MIN_DIM_SIDE_BY_SIDE = 48


def eigh(A: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues, ascending, and eigenvectors of symmetric matrices: ``(sigma, U)``.

    As `torch.linalg.eigh`, but a float32 decomposition that does not converge is repeated in float64, with one
    warning, and on a CPU the matrices of a batch are decomposed side by side, a thread each, which is measured to be
    faster than threads inside each LAPACK call (`bcnn bench matfun` shows the ratio).
    """
    return _decompose(torch.linalg.eigh, A)


def svd(A: Tensor) -> tuple[Tensor, Tensor]:
    """Signed singular values and left singular vectors of symmetric matrices: ``(sigma, U)`` with A = U sigma U^T.

    The sign of u_i . v_i is the sign of the eigenvalue, so that an indefinite matrix is seen as such.
    """
    U, S, Vh = _decompose(torch.linalg.svd, A)
    sign = torch.where((U * Vh.mT).sum(-2) < 0, -1.0, 1.0)
    return S * sign, U


def compose(U: Tensor, values: Tensor) -> Tensor:
    """``U diag(values) U^T``, in the precision of `U`."""
    return (U * values.to(U.dtype)[..., None, :]) @ U.mT


def _decompose(op: Callable[[Tensor], tuple[Tensor, ...]], A: Tensor) -> tuple[Tensor, ...]:
    if torch.compiler.is_compiling():
        return tuple(op(A))
    try:
        return _side_by_side(op, A)
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
    return tuple(part.to(A.dtype) for part in _decompose(op, A.double()))


def _side_by_side(op: Callable[[Tensor], tuple[Tensor, ...]], A: Tensor) -> tuple[Tensor, ...]:
    num_threads = torch.get_num_threads()
    batch = A.shape[:-2].numel()
    if A.device.type != "cpu" or min(batch, num_threads) < 2 or A.shape[-1] < MIN_DIM_SIDE_BY_SIDE:
        return tuple(op(A))
    # A pool a call: its start costs 0.1 ms, and no thread outlives a fork. The setting is the worker's own.
    with ThreadPoolExecutor(min(batch, num_threads), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        parts = list(pool.map(op, A.reshape(-1, *A.shape[-2:]).unbind()))
    stacked = (torch.stack(part) for part in zip(*parts, strict=True))
    return tuple(part.reshape(*A.shape[:-2], *part.shape[1:]) for part in stacked)
