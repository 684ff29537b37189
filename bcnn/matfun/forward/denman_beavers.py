r"""The matrix square root by Denman-Beavers iterations.

Legend: A positive definite matrices (..., d, d); Y -> A^{1/2} and Z -> A^{-1/2} the iterates; mu a scaling.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.scaling import frobenius
from ..contract import ForwardState, SpectralFunction
from .stopping import resolve_steps

DEFAULT_ITERS = 10
DEFAULT_ITERS_UNSCALED = 20
MAX_ITERS = 60


def denman_beavers(
    A: Tensor, _f: SpectralFunction, *, num_iters: int | None = None, tol: float | None = None, scaled: bool = True
) -> ForwardState:
    r"""Square root of SPD matrices by the Denman-Beavers iteration, inverses by Cholesky.

    .. math:: Y_{k+1} = \tfrac12 (\mu Y_k + \mu^{-1} Z_k^{-1}), \qquad Z_{k+1} = \tfrac12 (\mu Z_k + \mu^{-1} Y_k^{-1})

    Paper: Eq. (8), which is mu = 1, on A divided by its Frobenius norm, so that the number of steps does not depend on
    the unit of A. Scaling by `mu = |det Y det Z|^{-1/(2d)}` (Higham 1997), free from the Cholesky
    factors, takes 6 to 8 steps where the plain iteration takes about 20; it is a constant to the gradient.
    Valid: positive definite A, any scale; quadratic convergence from everywhere. A singular matrix is an error.
    Cost: two Cholesky factorizations and inverses a step. LU is avoided: batched LU fails on CPUs (pytorch#142815).

    Args:
        num_iters: steps; default 10 scaled, 20 unscaled ("about 20 iterations are sufficient").
        tol: instead, iterate until Y changes by less than this, relatively, at most 60 times.
        scaled: whether to scale by the determinant.
    """
    default = DEFAULT_ITERS if scaled else DEFAULT_ITERS_UNSCALED
    num_iters, stopping = resolve_steps("denman_beavers", num_iters, tol, default=default, maximum=MAX_ITERS)
    d = A.shape[-1]
    s = frobenius(A.detach())  # a constant to the gradient, like mu
    Y = A / s
    Z = torch.eye(d, dtype=A.dtype, device=A.device).expand_as(A)
    steps = 0
    for steps in range(1, num_iters + 1):  # noqa: B007
        (Y_inverse, log_det_Y), (Z_inverse, log_det_Z) = _inverse(Y), _inverse(Z)
        mu = torch.ones((), dtype=A.dtype, device=A.device)
        if scaled:
            mu = (-(log_det_Y + log_det_Z) / (2 * d)).exp()[..., None, None].detach()
        previous, Y, Z = Y, (mu * Y + Z_inverse / mu) / 2, (mu * Z + Y_inverse / mu) / 2
        if stopping is not None and stopping.reached(Y, previous):
            break
    else:
        if stopping is not None:
            stopping.not_reached()
    return ForwardState(A, Y * s.sqrt(), steps=torch.tensor(steps))


def _inverse(Y: Tensor) -> tuple[Tensor, Tensor]:
    L, info = torch.linalg.cholesky_ex(Y)
    L = torch.where((info == 0)[..., None, None], L, torch.nan)  # what failed must not look like a result
    # Not cholesky_inverse: its forward-mode derivative is wrong in torch 2.13, and `unrolled` needs it.
    eye = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device).expand_as(Y)
    return torch.cholesky_solve(eye, L), 2 * L.diagonal(dim1=-2, dim2=-1).log().sum(-1)
