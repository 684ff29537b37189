r"""The matrix square root by the coupled iteration with optimal odd polynomials: the one for GPUs.

Legend: A positive semi-definite matrices (..., d, d); s a bound of their largest eigenvalue.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.minimax import Polynomial, schedule
from ...linalg.scaling import DEFAULT_SCALE, scale_of
from ..contract import ForwardState, SpectralFunction
from .newton_schulz import coupled_iteration
from .stopping import check_steps

# The range that is covered by default ends at this many rounding units, and for half precision at one unit of its own.
# Further down, what rounding has left in the place of a zero would be blown up, without bound where it is negative.
LOWER_UNITS = 16.0


def minimax(
    A: Tensor,
    f: SpectralFunction,
    *,
    num_iters: int | None = None,
    tol: float | None = None,
    lower: float | None = None,
    scale: str | Tensor = DEFAULT_SCALE,
) -> ForwardState:
    r"""Square root of SPD matrices by the coupled iteration with minimax polynomials.

    .. math:: Y_{k+1} = Y_k P_k(Z_k Y_k), \qquad Z_{k+1} = P_k(Z_k Y_k) Z_k, \qquad P_k(M) = a_k I + b_k M + c_k M^2

    Paper: Eq. (9), with (3I - M) / 2 replaced by the polynomial that is best for where the spectrum is known to lie.
    Valid: eigenvalues in [lower, 1] times the scale come out to relative accuracy `tol` before rounding; smaller ones
    come out too small, zero stays zero. Coefficients depend on `lower` alone: no synchronization, no per-matrix work.
    Cost: four products a step, less two in the first and one in the last: 24 for lower = 1e-6 and tol = 1e-5, where
    Newton-Schulz takes 57.

    Args:
        num_iters: at most so many steps; the range is then the widest that so many steps cover. Default: no limit.
        tol: largest relative error of an eigenvalue of the root; default four units of rounding.
        lower: least eigenvalue over the scale, which the ridge of the pooling layer gives for free (eps / ||A||_F);
            default 16 units of rounding of the precision, or one of A's if that is half precision.
        scale: as in `newton_schulz`.
    """
    s = scale_of(A, scale)
    lower = lower or max(LOWER_UNITS * torch.finfo(A.dtype).eps, f.unit)
    Y, steps = coupled_iteration(A / s, polynomials_for("minimax", A.dtype, num_iters, tol, lower))
    return ForwardState(A, Y * s.sqrt(), steps=steps)


def polynomials_for(
    who: str, dtype: torch.dtype, num_iters: int | None, tol: float | None, lower: float
) -> tuple[Polynomial, ...]:
    """The schedule for the options as given, with the default tolerance of the precision."""
    check_steps(who, num_iters, tol)
    return tuple(schedule(lower, num_iters, tol or 4 * torch.finfo(dtype).eps))
