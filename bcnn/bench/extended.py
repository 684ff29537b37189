r"""The exact square root and its gradient, in more digits than any method measured against them has.

A float64 result needs a reference beyond float64. Both answers solve an equation whose residual is cheap to form in
extended precision (80 bits on x86), and a correction need only be right to a few digits: the float64 eigenbasis solves
for it, and a few rounds leave what the extended residual itself cannot tell.

.. math:: Z Z = A, \qquad Z X + X Z = G

Paper: Eq. (6), solved in the eigenbasis of Z.
Valid: positive definite A that float64 can tell from singular ones. The root is right to about sqrt(c) and the gradient
to about c units of extended rounding, 1e-19, with c the condition number of A; a float64 method loses as many of its
own units, which are 2000 times larger.
Cost: six d x d products per matrix that no BLAS does, of 0.2 s each for d = 512 on one core.

Legend: A matrices (batch, d, d); Z = A^{1/2}; G = dL/dZ; X = dL/dA; U eigenvectors of A; sigma eigenvalues; r their
roots.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..errors import ConvergenceError, NotPositiveDefiniteError

Extended = NDArray[np.longdouble]

MAX_ROUNDS = 12
SETTLED = 1e-10  # a relative change this small is rounding that the condition number has enlarged, not divergence


def exact_root_and_gradient(A: Tensor, G: Tensor) -> tuple[Extended, Extended]:
    """Z and X of the numbers as they are: what is given in float32 is taken as exact.

    Paper: Eq. (6).

    Args:
        A: symmetric positive definite matrices, float32 or float64, shape (batch, d, d).
        G: dL/dZ, symmetric, same shape.

    Returns:
        Z and X = dL/dA in `numpy.longdouble`, shape (batch, d, d).

    Raises:
        NotImplementedError: `numpy.longdouble` is no wider than float64 here.
        NotPositiveDefiniteError: an eigenvalue is not above zero in float64.
        ConvergenceError: a matrix too close to singular for float64 to correct.
    """
    check_extended()
    pairs = [_solve(a, g) for a, g in zip(to_extended(A), to_extended(G), strict=True)]
    return np.stack([Z for Z, _ in pairs]), np.stack([X for _, X in pairs])


def check_extended(eps: float = float(np.finfo(np.longdouble).eps)) -> None:
    """Raise where long double is float64 under another name (Windows, ARM Macs)."""
    if not eps < 1e-18:
        raise NotImplementedError(
            f"exact_root_and_gradient: expected numpy.longdouble with a rounding unit below 1e-18, got {eps:.1e}; "
            "this machine has no extended precision: run on x86 with Linux."
        )


def to_extended(A: Tensor) -> Extended:
    """Convert numbers to 80-bit floating point without rounding."""
    return A.detach().cpu().numpy().astype(np.longdouble)


def _solve(A: Extended, G: Extended) -> tuple[Extended, Extended]:
    """Z and X of one matrix, shape (d, d); the symmetric parts are what counts."""
    A, G = (A + A.T) / 2, (G + G.T) / 2
    sigma, U = np.linalg.eigh(A.astype(np.float64))
    if not sigma[0] > 0:
        raise NotPositiveDefiniteError(
            f"exact_root_and_gradient: expected positive definite matrices, got smallest eigenvalue {sigma[0]:.1e} "
            f"and largest {sigma[-1]:.1e}; raise the ridge."
        )
    r = np.sqrt(sigma)
    sums = r[:, None] + r

    def correction(R: Extended) -> Extended:
        """D with Z D + D Z = R, nearly: of the root's equation the Newton step, of the gradient's the solution."""
        D = U @ ((U.T @ R.astype(np.float64) @ U) / sums) @ U.T
        return np.asarray((D + D.T) / 2, np.longdouble)

    Z = _refine(((U * r) @ U.T).astype(np.longdouble), lambda Z: A - _product(Z, Z), correction)

    def residual(X: Extended) -> Extended:
        P = _product(Z, X)
        return np.asarray(G - (P + P.T), np.longdouble)  # X Z is the transpose of Z X: both are symmetric

    return Z, _refine(correction(G), residual, correction)


def _refine(
    value: Extended, residual: Callable[[Extended], Extended], correction: Callable[[Extended], Extended]
) -> Extended:
    """Correct until the corrections no longer shrink: the residual is then rounding."""
    value = (value + value.T) / 2
    change = previous = np.inf
    for _ in range(MAX_ROUNDS):
        D = correction(residual(value))
        value = value + D
        size = _norm(value)
        change = _norm(D) / size if size > 0 else 0.0  # G = 0 has X = 0
        if change < np.finfo(np.longdouble).eps or change > previous / 4:
            break
        previous = change
    if not change < SETTLED:
        raise ConvergenceError(
            f"exact_root_and_gradient: expected corrections to fall below {SETTLED:.0e}, got {change:.1e} after "
            f"{MAX_ROUNDS} rounds or fewer; the matrix is singular to float64: raise the ridge."
        )
    return value


def _product(A: Extended, B: Extended) -> Extended:
    """``A @ B`` for symmetric B, along rows of both: a quarter of the time of `@`, which walks down columns."""
    return np.asarray(np.einsum("ij,kj->ik", A, B), np.longdouble)


def _norm(A: Extended) -> float:
    return float(np.sqrt((A * A).sum()))
