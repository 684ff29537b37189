r"""The gradient of any matrix function through the SVD, as the paper prints it.

Legend: Z = f(A); grad_Z = dL/dZ; U, sigma singular vectors and values of A; K_ij = 1/(sigma_i - sigma_j).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ...errors import GradientExceptionWarning
from ..contract import ForwardState, SpectralFunction

Report = Callable[[int, int], None]


def warn_exceptions(bad: int, total: int) -> None:
    """The default report: a warning with the number of matrices."""
    message = (
        f"svd gradient: infinite or NaN in {bad} of {total} matrices, from eigenvalues that coincide; "
        "use backward='lyapunov' or 'loewner', which have no such exceptions."
    )
    warnings.warn(GradientExceptionWarning(message, bad), stacklevel=2)


def svd(state: ForwardState, grad_Z: Tensor, f: SpectralFunction, *, report: Report = warn_exceptions) -> Tensor:
    r"""dL/dA through the SVD, Eqs. (2)-(4) as printed.

    .. math:: \frac{\partial L}{\partial A} =
        U \Big\{ \Big( K^T \odot \Big( U^T \frac{\partial L}{\partial U} \Big) \Big)
        + \Big( \frac{\partial L}{\partial \Sigma} \Big)_{diag} \Big\} U^T

    Paper: Eq. (2)-(4); the column "SVD" of Table 3 (right). The printed result is not symmetric; since A is, only its
    symmetric part acts, and that is what is returned. Kept as the paper's subject of study: the large terms
    g_j/(sigma_j - sigma_i) and g_i/(sigma_i - sigma_j) are formed apart and cancel, which costs orders of magnitude.
    Valid: distinct eigenvalues; equal ones give infinities and NaN, which are returned as they come and reported.
    Cost: five products.

    Args:
        report: called with (matrices with exceptions, matrices) when there are any; the default warns.
    """
    gradient = svd_gradient(state, grad_Z, f, keep=None)
    count_exceptions(gradient, report)
    return gradient


def svd_gradient(state: ForwardState, grad_Z: Tensor, f: SpectralFunction, *, keep: Tensor | None) -> Tensor:
    """Eqs. (2)-(4); where `keep` (..., d) is False, the rows and columns of K and entries of Sigma are zero."""
    assert state.U is not None
    assert state.sigma is not None
    U, sigma = state.U, state.sigma.to(state.U.dtype)
    g, dg = f.g(sigma, f.p).to(U.dtype), f.dg(sigma, f.p).to(U.dtype)
    grad_U = ((grad_Z + grad_Z.mT) @ U) * g[..., None, :]  # Eq. (3), left
    grad_sigma = dg * (U * (grad_Z @ U)).sum(-2)  # Eq. (3), right: the diagonal of g'(Sigma) U^T grad_Z U
    difference = sigma[..., :, None] - sigma[..., None, :]
    off_diagonal = ~torch.eye(sigma.shape[-1], dtype=torch.bool, device=sigma.device)
    if keep is not None:
        off_diagonal = off_diagonal & keep[..., :, None] & keep[..., None, :]
        grad_sigma = torch.where(keep, grad_sigma, torch.zeros_like(grad_sigma))
    K = torch.where(off_diagonal, 1 / difference, torch.zeros_like(difference))
    inner = K.mT * (U.mT @ grad_U) + torch.diag_embed(grad_sigma)
    gradient = U @ inner @ U.mT  # Eq. (2)
    return (gradient + gradient.mT) / 2


def count_exceptions(gradient: Tensor, report: Report) -> Tensor:
    """Report matrices with infinite or NaN entries; returns which they are, shape (...)."""
    bad = ~gradient.isfinite().flatten(-2).all(-1)
    if gradient.numel() and bool(bad.any()):
        report(int(bad.sum()), bad.numel())
    return bad
