r"""The matrix logarithm by products alone: repeated square roots, then the series near the identity.

Legend: A positive definite matrices (..., d, d); s a bound of their largest eigenvalue; k the number of roots.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...linalg.checks import not_positive_definite
from ...linalg.products import add_to_diagonal, polynomial
from ...linalg.scaling import DEFAULT_SCALE, scale_of
from ..contract import ForwardState, SpectralFunction
from .minimax import polynomials_for
from .newton_schulz import coupled_iteration

# The series is used for ||I - A^{1/2^k}|| below this: fewer roots lose fewer digits, more roots need fewer terms.
SERIES_RADIUS = 0.25
MAX_RADIUS = 0.9  # and given fewer roots than that, it is never used beyond this


def inverse_scaling_squaring(
    A: Tensor,
    _f: SpectralFunction,
    *,
    num_roots: int | None = None,
    lower: float | None = None,
    scale: str | Tensor = DEFAULT_SCALE,
) -> ForwardState:
    r"""Logarithm of SPD matrices by inverse scaling and squaring.

    .. math:: \log A = \log(s) I + 2^k \log\big((A/s)^{1/2^k}\big), \qquad \log(I - X) = -\sum_j X^j / j

    Paper: the identity and the Taylor series at the end of Sec. 2.2; the roots are those of `minimax`.
    Valid: eigenvalues in [lower, 1] times the scale, which is checked where values may be looked at. The k roots cost k
    bits, and small eigenvalues lose more in the first root: in float32 expect 1e-5 to 1e-4 at condition number 10^6,
    "eigen" gives 1e-7.
    Cost: k square roots of falling price and one product a term of the series.

    Args:
        num_roots: k; default: as many as bring `lower` within the radius of the series.
        lower: least eigenvalue over the scale; default one unit of rounding of the precision.
        scale: as in `newton_schulz`.
    """
    eps = torch.finfo(A.dtype).eps
    lower = lower or eps
    k = roots_for(lower, SERIES_RADIUS) if num_roots is None else num_roots
    radius = 1 - lower ** (0.5**k)
    if radius > MAX_RADIUS:
        raise ValueError(
            f"inverse_scaling_squaring: expected `num_roots` >= {roots_for(lower, MAX_RADIUS)} for lower={lower:.1e}, "
            f"got {k}."
        )
    s = scale_of(A, scale)
    B, steps = A / s, 0
    for i in range(k):
        polynomials = polynomials_for("inverse_scaling_squaring", A.dtype, None, None, lower ** (0.5**i))
        B, _ = coupled_iteration(B, polynomials)
        steps += len(polynomials)
    num_terms = max(1, math.ceil(math.log(eps) / math.log(radius))) if radius > 0 else 1
    series = [0.0] + [-1 / j for j in range(1, num_terms + 1)]
    Z = polynomial(series, add_to_diagonal(-B, 1.0)) * 2.0**k
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return ForwardState(A, Z + s.log() * eye, steps=torch.tensor(steps))


def check_range(
    who: str, A: Tensor, *, lower: float | None = None, scale: str | Tensor = DEFAULT_SCALE, **_: Any
) -> None:
    """Raise if an eigenvalue lies below `lower` times the scale, where the result would be meaningless."""
    if A.numel() == 0:
        return
    least = lower or torch.finfo(A.dtype).eps
    shifted = add_to_diagonal(A / scale_of(A, scale), -least / 2)  # half of it is left to rounding
    bad = torch.linalg.cholesky_ex(shifted).info != 0
    if bad.any():
        hint = f" This method covers eigenvalues from {least:.1e} of the scale: pass a smaller `lower`, float64, or "
        low = torch.linalg.eigvalsh(A[bad].double()).min().item()
        raise not_positive_definite(who, bad, low, hint + "forward='eigen'.")


def roots_for(lower: float, radius: float) -> int:
    """How many square roots bring [lower, 1] within `radius` of 1."""
    return max(0, math.ceil(math.log2(math.log(lower) / math.log1p(-radius)))) if lower < 1 else 0
