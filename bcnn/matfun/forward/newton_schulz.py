r"""The matrix square root by the paper's inverse-free Newton iteration, and the coupled loop it shares with `minimax`.

Legend: A positive semi-definite matrices (..., d, d); s a bound of their largest eigenvalue; Y -> (A/s)^{1/2} and
Z -> (A/s)^{-1/2} the iterates; M = Z Y -> I; P the polynomial of a step.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ...linalg.minimax import NEWTON_SCHULZ, Polynomial
from ...linalg.products import polynomial, product, symmetric_product
from ...linalg.scaling import DEFAULT_SCALE, scale_of
from ..contract import ForwardState, SpectralFunction
from .stopping import Stopping, resolve_steps

DEFAULT_ITERS = 5
MAX_ITERS = 100


def newton_schulz(
    A: Tensor,
    _f: SpectralFunction,
    *,
    num_iters: int | None = None,
    tol: float | None = None,
    scale: str | Tensor = DEFAULT_SCALE,
) -> ForwardState:
    r"""Square root of SPD matrices by the inverse-free Newton iteration.

    .. math:: Y_{k+1} = \tfrac12 Y_k (3I - Z_k Y_k), \qquad Z_{k+1} = \tfrac12 (3I - Z_k Y_k) Z_k

    Paper: Eq. (9), Sec. 2.2; accuracy and time in Table 3 (left).
    Valid: converges when ||A - I||_2 < 1, so A is first divided by `scale`; zero eigenvalues stay zero (those that
    rounding has made negative grow, and are noticed, after some 25 steps in float32). An eigenvalue smaller than the
    scale by a factor c takes about log(c) / log(2.25) steps: 5 steps are an approximation that classifies as well
    (Table 3), not a square root.
    Cost: three products a step, less two in the first step and one in the last.

    Args:
        num_iters: steps, from 0 up; 0 is A itself up to scale, the column "0" of Table 3. Default 5.
        tol: instead, iterate until Y changes by less than this, relatively, at most 100 times.
        scale: "frobenius", "trace" (as in iSQRT-COV), or a tensor (..., 1, 1) no smaller than the largest eigenvalue.
    """
    num_iters, stopping = resolve_steps("newton_schulz", num_iters, tol, default=DEFAULT_ITERS, maximum=MAX_ITERS)
    s = scale_of(A, scale)
    Y, steps = coupled_iteration(A / s, (NEWTON_SCHULZ,) * num_iters, stopping)
    return ForwardState(A, Y * s.sqrt(), steps=steps)


def coupled_iteration(
    A: Tensor, polynomials: Iterable[Polynomial], stopping: Stopping | None = None
) -> tuple[Tensor, Tensor]:
    """``Y <- Y P(Z Y)``, ``Z <- P(Z Y) Z`` from Y = A, Z = I; returns the last Y and the number of steps.

    Paper: Eq. (9) is P(M) = (3I - M) / 2.
    Valid: the order of the factors matters, and no product may be made symmetric between the first step (a polynomial
    of A alone) and the last (whose errors go nowhere), although every exact iterate is symmetric: the rounding errors
    of Y and Z then no longer cancel, and at condition number 10^6 grow by orders of magnitude (a test shows it).
    """
    polynomials = tuple(polynomials)
    Y, Z, steps = A, None, 0
    for steps, c in enumerate(polynomials, start=1):
        last = steps == len(polynomials)
        M = Y if Z is None else product(Z, Y)
        P = polynomial(c, M, symmetric=Z is None)
        previous, Y = Y, symmetric_product(Y, P) if Z is None or last else product(Y, P)
        if stopping is not None and stopping.reached(Y, previous):
            break
        if not last:  # the last Z is not needed
            Z = P if Z is None else product(P, Z)
    else:
        if stopping is not None:
            stopping.not_reached()
    return Y, torch.tensor(steps)
