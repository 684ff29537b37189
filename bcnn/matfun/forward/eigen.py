r"""Any matrix function by the symmetric eigendecomposition.

Legend: A symmetric matrices (..., d, d); U, sigma eigenvectors and eigenvalues of A.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from ...errors import ClampedSpectrumWarning, NoisySpectrumWarning
from ...linalg import checks, spectrum
from ..contract import ForwardState, SpectralFunction

# What rounding leaves of a zero may become this much of the largest eigenvalue of the result without a warning.
LARGEST_NOISE = 0.01


def eigen(A: Tensor, f: SpectralFunction, *, precision: str = "high", tolerance: float | None = None) -> ForwardState:
    r"""``f(A) = U g(Sigma) U^T`` by eigh.

    Paper: Sec. 2.2, with eigh for the SVD, which for symmetric A is the same in exact arithmetic.
    Valid: any spectrum. In float32 digits are lost in eigh, not elsewhere: eigh alone is taken to float64, the products
    stay in float32, which brings the root to 1e-7 and the gradient to 1e-6 at condition number 10^6, where eigh in
    float32 has 4e-4 and 3e-2 (`bcnn bench matfun`).
    Cost: one eigh and one product; U and sigma are kept for the backward pass.

    Args:
        precision: "high" decomposes in float64, "fast" in the precision of A.
        tolerance: raise if an eigenvalue is below minus this times the largest; None does not look (a GPU would wait).
    """
    return spectral(A, f, spectrum.eigh, precision=precision, tolerance=tolerance)


def spectral(
    A: Tensor,
    f: SpectralFunction,
    decompose: Callable[[Tensor], tuple[Tensor, Tensor]],
    *,
    precision: str,
    tolerance: float | None,
) -> ForwardState:
    """The part that `eigen` and `svd` share: precision, domain, and composition."""
    sigma, U = decompose(A.to(spectrum.widest(A)) if precision == "high" else A)
    unit = torch.finfo(A.dtype).eps
    inside = tolerance is not None and _is_well_inside(sigma, unit)
    if not inside:
        floor = f.floor(sigma, f.p, unit)  # (..., 1)
        if tolerance is not None and A.numel():
            _check_domain(f, sigma, floor, tolerance=tolerance, unit=unit, fast=precision == "fast")
        sigma = torch.maximum(sigma, floor)
    U = U.to(A.dtype)
    values = f.g(sigma, f.p).to(A.dtype)
    Z = spectrum.compose(U, values)
    if tolerance is not None and not (inside and f.p is None):  # powers may be too large
        checks.check_result(f.wrapper, True, Z)
    return ForwardState(A, Z, U, sigma)


def _is_well_inside(sigma: Tensor, unit: float) -> bool:
    """Whether no eigenvalue needs a second look, whatever the function: the usual case, told by two operations."""
    if sigma.numel() == 0:
        return False
    low, high = (end.item() for end in sigma.aminmax())
    return max(spectrum.NULL_UNITS * unit * high, torch.finfo(sigma.dtype).tiny) < low and high < math.inf


def _check_domain(
    f: SpectralFunction, sigma: Tensor, floor: Tensor, *, tolerance: float, unit: float, fast: bool
) -> None:
    checks.check_spectrum(f.wrapper, sigma, tolerance=tolerance)
    floor = floor.expand_as(sigma[..., :1])
    checks.check_nonzero(f.wrapper, sigma, where=floor[..., 0] > 0)
    clamped = int(((sigma < floor) & (floor > 0)).sum())
    if clamped:
        warnings.warn(
            f"{f.wrapper}: {clamped} of {sigma.numel()} eigenvalues lie below the rounding of A and were raised to it; "
            "raise `eps` in the pooling layer to decide their value yourself.",
            ClampedSpectrumWarning,
            stacklevel=2,
        )
    _warn_of_noise(f, sigma, unit, fast=fast)


def _warn_of_noise(f: SpectralFunction, sigma: Tensor, unit: float, *, fast: bool) -> None:
    """A small exponent makes much of what rounding has left in the place of zeros.

    A decomposition in the precision of A (`fast`) may also have left a zero in the place of something small.
    """
    if f.p is None:
        return
    within = spectrum.NULL_UNITS * unit  # of the largest eigenvalue
    grows = (f.p > 0) & (within**f.p > LARGEST_NOISE)
    largest = sigma.amax(-1, keepdim=True)
    noise = grows[..., None] & (sigma <= within * largest) & ((largest if fast else sigma) > 0)
    if noise.any():
        size = float((within ** f.p.expand(sigma.shape[:-1])[noise.any(-1)]).max())
        warnings.warn(
            f"{f.wrapper}: {int(noise.sum())} of {sigma.numel()} eigenvalues lie within the rounding of A; raised to "
            f"the power p they are up to {size:.1g} of the largest, and the gradient takes them for zero. Raise `eps` "
            "in the pooling layer, or pass float64.",
            NoisySpectrumWarning,
            stacklevel=2,
        )
