r"""Solvers of the Lyapunov equation Z X + X Z = Q for symmetric positive (semi-)definite Z and symmetric Q.

Paper: Eq. (6), with X = dL/dA and Q = dL/dZ; Eq. (7) is `kronecker`.
Where Z is singular the equation has no solution for a general Q. `eigen` then returns zero between two null vectors,
which is the part that no feature matrix X with A = X X^T / n can see, and the exact solution elsewhere; `iterative` the
same to within some percent, since rounding noise in place of zeros converges in part; the others refuse.

Legend: Z the matrix square root (..., d, d); Q the right side; U, r eigenvectors and eigenvalues of Z.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..errors import NotPositiveDefiniteError
from .autodiff import may_branch
from .minimax import NEWTON_SCHULZ, schedule
from .products import add_to_diagonal, common_batch, polynomial
from .scaling import frobenius
from .spectrum import eigh, weigh_in_basis

MAX_DIM_KRONECKER = 48


def reciprocal_sums(r: Tensor, *, null: float) -> Tensor:
    """K_ij = 1 / (r_i + r_j), shape (..., d, d), and 0 where both r_i and r_j are below `null` times the largest."""
    total = r[..., :, None] + r[..., None, :]
    if may_branch(r) and r.numel():
        low, high = r.aminmax()
        if low.item() > null * high.item():  # of the whole batch: the usual case, in a fifth of the time
            return total.reciprocal_()
    floor = null * r.amax(-1, keepdim=True)
    return torch.where(total <= 2 * floor[..., None], torch.inf, total).reciprocal_()


def eigen(Z: Tensor, Q: Tensor, *, null: float, U: Tensor | None = None, r: Tensor | None = None) -> Tensor:
    """The exact solution in the eigenbasis U of Z, which is that of A; four products, and an eigh where U is None."""
    if U is None or r is None:
        r, U = eigh(Z)
        r = r.clamp_min(0)
    return weigh_in_basis(U, Q, reciprocal_sums(r.to(U.dtype), null=null))


def bartels_stewart(Z: Tensor, Q: Tensor) -> Tensor:
    """The paper's reference solver: SciPy's, on the CPU, in float64, a loop over the batch."""
    import numpy
    from scipy.linalg import solve_continuous_lyapunov

    batch = common_batch(Z.shape[:-2], Q.shape[:-2])
    d = Z.shape[-1]
    flat = [T.detach().expand(*batch, d, d).reshape(-1, d, d).double().cpu().numpy() for T in (Z, Q)]
    lowest = min((numpy.linalg.eigvalsh(z)[0] / max(numpy.abs(z).max(), 1e-300) for z in flat[0]), default=1.0)
    if lowest < torch.finfo(Z.dtype).eps:
        raise _singular("bartels_stewart")
    parts = [solve_continuous_lyapunov(z, q) for z, q in zip(*flat, strict=True)]
    X = torch.from_numpy(numpy.stack(parts)) if parts else torch.zeros(0, d, d, dtype=torch.float64)
    return X.reshape(*batch, d, d).to(Q)


def kronecker(Z: Tensor, Q: Tensor) -> Tensor:
    """Eq. (7), (Z ⊗ I + I ⊗ Z) vec(X) = vec(Q), solved by Cholesky: d^6 operations, for tests and small d."""
    d = Z.shape[-1]
    if d > MAX_DIM_KRONECKER:
        raise ValueError(
            f"lyapunov: solver 'kronecker' solves a d² x d² system and takes d <= {MAX_DIM_KRONECKER}, got d = {d}; "
            "use solver='eigen'."
        )
    eye = torch.eye(d, dtype=Z.dtype, device=Z.device)
    system = (Z[..., :, None, :, None] * eye[:, None, :]) + (eye[:, None, :, None] * Z[..., None, :, None, :])
    L, info = torch.linalg.cholesky_ex(system.reshape(*Z.shape[:-2], d * d, d * d))
    if (info != 0).any():
        raise _singular("kronecker")
    return torch.cholesky_solve(Q.reshape(*Q.shape[:-2], d * d, 1), L).reshape(Q.shape)


def _singular(solver: str) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"lyapunov: solver {solver!r} needs a positive definite Z; raise `eps` in the pooling layer, "
        "or use solver='eigen'."
    )


def iterative(Z: Tensor, Q: Tensor, *, solver_iters: int | None = None, solver_lower: float | None = None) -> Tensor:
    r"""By products alone: the sign iteration of the block matrix N = [[Z, Q], [0, -Z]], sign(N) = [[I, 2X], [0, -I]].

    With a = Z and q = Q, both divided by s = ||Z Z||_F^{1/2}, a step with the odd polynomial p(N) = N P(N^2) reads

    .. math:: q \leftarrow q\,P(a^2) + a\,(c_1 C + c_2 (a^2 C + C a^2)), \quad a \leftarrow a\,P(a^2), \quad C = aq - qa

    Args:
        Z: roots, shape (..., d, d).
        Q: right sides, shape (..., d, d).
        solver_iters: this many steps of the paper's polynomial (3x - x^3) / 2, as the authors' code does; None takes
            the minimax polynomials of `linalg.minimax`, as many as the range needs.
        solver_lower: least eigenvalue of Z over s, the square root of `lower` in `minimax`. By default four times the
            square root of a unit of rounding, at least 1e-6, and what a null space spoils is mended (seven products).
    """
    a2 = Z @ Z
    s = frobenius(a2).sqrt()
    a, q, a2 = Z / s, Q / s, a2 / s**2
    eps = torch.finfo(Z.dtype).eps
    if solver_iters is None:
        steps = schedule((solver_lower or max(4 * eps**0.5, 1e-6)) ** 2, None, 4 * eps)
    else:
        steps = (NEWTON_SCHULZ,) * solver_iters
    for i, c in enumerate(steps):
        if i:
            a2 = a @ a
        aq = a @ q
        C = aq - aq.mT  # antisymmetric
        off = c[1] * C
        if len(c) == 3:
            a2C = a2 @ C
            off = off + c[2] * (a2C - a2C.mT)
        P = polynomial(c, a2)
        q = q @ P + a @ off
        q = (q + q.mT) / 2
        a = a @ P
    if solver_iters is not None or solver_lower is not None:
        return q / 2
    # Without a promise of `solver_lower`, Z may have a null space. There a is d, small, instead of 1, and q_ij is
    # Q_ij (a_i + a_j) / (z_i + z_j): too small between range and null space, meaningless within the null space. With M
    # the square of the projector I - a, m = (1 - d)^2, the factor (1 + m_i) (1 + m_j) (1 - m_i m_j)^2 / 2 is right to
    # the second order of d: 1/2, 1 - d and 0 in the three blocks.
    N = -add_to_diagonal(a, -1.0)
    M = N @ N
    q = q + M @ q
    q = (q + q @ M) / 2
    for _ in range(2):
        q = q - M @ q @ M
    return q


SOLVERS: dict[str, Callable[..., Tensor]] = {
    "eigen": eigen,
    "bartels_stewart": bartels_stewart,
    "kronecker": kronecker,
    "iterative": iterative,
}
