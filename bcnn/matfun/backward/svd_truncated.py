r"""The truncated SVD gradient of the paper.

Legend: as in `svd`; tau the threshold below which eigenvalues are left out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..contract import ForwardState, SpectralFunction
from .svd import Report, count_exceptions, svd_gradient, warn_exceptions


def svd_truncated(
    state: ForwardState,
    grad_Z: Tensor,
    f: SpectralFunction,
    *,
    tau: float | None = None,
    report: Report = warn_exceptions,
) -> Tensor:
    r"""dL/dA through the SVD with K and Sigma set to zero for eigenvalues below tau.

    Paper: Sec. 2.2, "Numerical stability and truncated SVD gradients". It gives no value of tau; read as a threshold on
    the eigenvalues of A, our default is one unit of rounding, relative to the largest one, above zero or, where several
    cannot be told from the smallest one, above that: eps I makes those of dead channels and of fewer features than
    channels equal. The paper still met numerical exceptions, and "simply ignoring these cases worked well for
    fine-tuning when the learning rates were small": a matrix whose gradient is still not finite contributes zero, and
    is counted and reported.
    Valid: an approximation; the directions below tau get no gradient.
    Cost: as `svd`.

    Args:
        tau: absolute threshold on the eigenvalues of A; default as above.
        report: called with (matrices ignored, matrices) when there are any; the default warns.
    """
    assert state.sigma is not None
    assert state.U is not None
    sigma = state.sigma
    floor = default_tau(sigma, torch.finfo(state.U.dtype).eps) if tau is None else tau
    gradient = svd_gradient(state, grad_Z, f, keep=sigma > floor)
    bad = count_exceptions(gradient, report)
    return torch.where(bad[..., None, None], torch.zeros_like(gradient), gradient)


def default_tau(sigma: Tensor, eps: float) -> Tensor:
    """Thresholds of spectra (..., d), shape (..., 1)."""
    rounding = eps * sigma.amax(-1, keepdim=True)
    above = sigma.amin(-1, keepdim=True) + rounding
    number = (sigma <= above).sum(-1, keepdim=True)
    repeated = (number > 1) & (number < sigma.shape[-1])  # of equal ones throughout nothing would be left
    return torch.where(repeated, torch.maximum(above, rounding), rounding)
