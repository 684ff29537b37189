"""One function per rule that an input must obey; each says who, expected, got and what to do.

Legend: A symmetric matrices (..., d, d); sigma their eigenvalues (..., d).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..errors import ConvergenceError, NotFiniteError, NotPositiveDefiniteError
from .operand import Factored

# Asymmetry, relative to the largest entry, that is taken for rounding (or a finite difference) and averaged away.
MAX_ASYMMETRY = 1e-4


def check_square(who: str, A: Tensor) -> None:
    """Raise unless `A` is a floating-point tensor of shape (..., d, d) with d >= 1."""
    if not isinstance(A, Tensor):
        raise TypeError(f"{who}: expected `A` to be a torch.Tensor, got {type(A).__name__}; use torch.as_tensor(A).")
    if A.ndim < 2 or A.shape[-1] != A.shape[-2] or A.shape[-1] == 0:
        raise ValueError(
            f"{who}: expected `A` of shape (..., d, d) with d >= 1, got {tuple(A.shape)}; "
            "pool the features into A = X Xᵀ / n + eps I first."
        )
    if A.dtype not in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        raise TypeError(f"{who}: expected a real floating-point `A`, got {A.dtype}; convert with A.float().")
    if A.layout != torch.strided:
        raise TypeError(f"{who}: expected a dense `A`, got {A.layout}; convert with A.to_dense().")


def check_factored(who: str, A: Factored) -> Factored:
    """Return the operand in float32 at least, its ridge, which may be a number, one per matrix; else raise."""
    X, ridge = A.X, A.ridge
    if not isinstance(X, Tensor) or X.ndim < 2 or X.shape[-2] == 0 or not X.is_floating_point():
        got = f"{X.dtype} {tuple(X.shape)}" if isinstance(X, Tensor) else type(X).__name__
        raise ValueError(
            f"{who}: expected `X` of a Factored matrix to be a floating-point tensor (..., d, n), got {got}."
        )
    if ridge is not None and (not isinstance(ridge, Tensor) or ridge.shape != X.shape[:-2]):
        try:
            ridge = torch.as_tensor(ridge, dtype=torch.promote_types(X.dtype, torch.float32), device=X.device)
            ridge = ridge.expand(X.shape[:-2])
        except (TypeError, ValueError, RuntimeError):
            got = f"shape {tuple(ridge.shape)}" if isinstance(ridge, Tensor) else repr(ridge)
            raise ValueError(
                f"{who}: expected the ridge of a Factored matrix to be None, a number, or one number per matrix, shape "
                f"{tuple(X.shape[:-2])}, got {got}."
            ) from None
    return Factored(X.to(torch.promote_types(X.dtype, torch.float32)), ridge, A.least)


def check_finite(who: str, A: Tensor) -> None:
    """Raise if any entry is infinite or NaN, naming how many matrices are concerned and the first."""
    bad = ~_largest(A).isfinite()
    if bad.any():
        raise NotFiniteError(
            f"{who}: expected finite entries, got infinite or NaN ones in {_count(bad)}; "
            "look for overflow in the features (float16?) or a diverging loss upstream."
        )


def check_symmetric(who: str, A: Tensor, S: Tensor, *, eps: float) -> None:
    """Raise if `A` differs from its symmetric part `S` by far more than its rounding `eps`."""
    size = _largest(A)
    asymmetry = 2 * _largest(A - S)
    bad = asymmetry > max(MAX_ASYMMETRY, 16 * eps) * size
    if bad.any():
        worst = (asymmetry / size)[bad].max().item()
        raise ValueError(
            f"{who}: expected symmetric matrices, got {_count(bad)} asymmetric by up to {worst:.1e} of the largest "
            "entry; pass (A + A.mT) / 2 if the symmetric part is meant."
        )


def check_spectrum(who: str, sigma: Tensor, *, tolerance: float) -> None:
    """Raise if an eigenvalue is below ``-tolerance`` times the largest modulus: indefinite, not rounding."""
    if sigma.numel() == 0:
        return
    low = sigma.amin(-1)
    bad = low < -tolerance * sigma.abs().amax(-1)
    if bad.any():
        raise not_positive_definite(who, bad, low[bad].min().item())


def check_nonzero(who: str, sigma: Tensor, *, where: Tensor) -> None:
    """Raise if a whole spectrum is zero or below, `where` the function (such as the logarithm) has no value there."""
    bad = ~(sigma.amax(-1) > 0) & where
    if bad.any():
        raise not_positive_definite(who, bad, sigma[bad].amin().item())


def check_factorable(who: str, A: Tensor, *, definite: bool, tolerance: float) -> None:
    """The same rule as `check_spectrum` for methods without a spectrum: one Cholesky factorization.

    Where singular matrices are allowed, A is first shifted by `tolerance`, relative to its diagonal.
    """
    if A.numel() == 0:
        return
    shifted = A
    if not definite:
        shift = tolerance * A.diagonal(dim1=-2, dim2=-1).abs().amax(-1, keepdim=True)
        shifted = A.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(shift.clamp_min(torch.finfo(A.dtype).tiny))
    bad = torch.linalg.cholesky_ex(shifted).info != 0
    if bad.any():
        low = torch.linalg.eigvalsh(A[bad].double()).min().item()
        hint = f" This method needs full rank in {A.dtype}: pass float64 or use forward='eigen'." if definite else ""
        raise not_positive_definite(who, bad, low, hint)


def check_result(who: str, is_decomposition: bool, Z: Tensor) -> None:
    """Raise if the result has infinite or NaN entries: of an iteration that diverged, or of numbers too large."""
    bad = ~_largest(Z).isfinite()
    if bad.any():
        if is_decomposition:
            raise NotFiniteError(
                f"{who}: expected a result within the range of {Z.dtype}, got infinite entries in {_count(bad)}; "
                "pass float64, scale `A` down, or take an exponent nearer to 0."
            )
        raise ConvergenceError(
            f"{who}: the iteration ended in infinite or NaN entries in {_count(bad)}; "
            "raise `eps` in the pooling layer, take fewer steps or a larger `lower`, or use forward='eigen'."
        )


def spectrum_tolerance(d: int, dtype: torch.dtype) -> float:
    """How negative, relative to the largest, rounding to `dtype` alone can make an eigenvalue of a d x d matrix."""
    return min(10 * math.sqrt(d) * torch.finfo(dtype).eps, 0.1)


def not_positive_definite(who: str, bad: Tensor, low: float, hint: str = "") -> NotPositiveDefiniteError:
    """The error that names how many matrices of the batch are at fault, and the remedy."""
    return NotPositiveDefiniteError(
        f"{who}: {_count(bad)} are not positive definite (smallest eigenvalue {low:.1e}). "
        "Raise `eps` in the pooling layer (the paper uses 1, Sec. 3.2), or check that A is a covariance." + hint
    )


def _largest(A: Tensor) -> Tensor:
    if A.numel() == 0:
        return A.new_zeros(A.shape[:-2])
    flat = A.flatten(-2)  # two reductions without a temporary: faster than the infinity norm
    return torch.maximum(flat.amax(-1), -flat.amin(-1))


def _count(bad: Tensor) -> str:
    index = tuple(bad.nonzero()[0].tolist())
    where = f", first at index {index}" if index else ""
    return f"{int(bad.sum())} of {bad.numel()} matrices{where}"
