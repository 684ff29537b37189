r"""The gradient of any matrix function by divided differences.

Legend: Z = f(A); grad_Z = dL/dZ; U, sigma eigenvectors and eigenvalues of A; K the Loewner matrix.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg import spectrum
from ..contract import ForwardState, SpectralFunction


def loewner(state: ForwardState, grad_Z: Tensor, f: SpectralFunction) -> Tensor:
    r"""dL/dA of any spectral function (Daleckii-Krein).

    .. math:: \frac{\partial L}{\partial A} =
        U \Big\{ K \odot \Big( U^T \frac{\partial L}{\partial Z} U \Big) \Big\} U^T,
        \qquad K_{ij} = \frac{g(\sigma_i) - g(\sigma_j)}{\sigma_i - \sigma_j}, \quad K_{ii} = g'(\sigma_i)

    Paper: what Eq. (2)-(4) say in exact arithmetic. There 1/(sigma_i - sigma_j) is formed first and cancels later; here
    K comes from each function's own formula without a difference of eigenvalues in the denominator, so
    that repeated eigenvalues are exact and log(A) and A^p train, which the paper reports failing at (Sec. 3.5).
    Valid: everywhere f is differentiable; infinite entries between null vectors are set to zero (see each function).
    Cost: four products, and an eigh of A where the forward left no basis.
    """
    U, sigma, eps = state.U, state.sigma, torch.finfo(state.A.dtype).eps
    if U is None or sigma is None:
        sigma, U = spectrum.eigh(state.A.to(spectrum.widest(state.A)))
        sigma = torch.maximum(sigma, f.floor(sigma, f.p, eps))
        U = U.to(state.A.dtype)
    return spectrum.weigh_in_basis(U, grad_Z, f.divided_difference(sigma, f.p, eps).to(U.dtype))
