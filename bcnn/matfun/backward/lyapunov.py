r"""The gradient of the square root by a Lyapunov equation.

Legend: Z = A^{1/2}; grad_Z = dL/dZ; U, sigma eigenvectors and eigenvalues of A.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ...linalg.lyapunov import SOLVERS, eigen, iterative
from ...linalg.spectrum import NULL_UNITS
from ..contract import ForwardState, SpectralFunction


def lyapunov(
    state: ForwardState,
    grad_Z: Tensor,
    _f: SpectralFunction,
    *,
    solver: str = "auto",
    solver_iters: int | None = None,
    solver_lower: float | None = None,
) -> Tensor:
    r"""dL/dA of the matrix square root from ``Z (dL/dA) + (dL/dA) Z = dL/dZ``.

    Paper: Eq. (6), its closed form Eq. (7); the column "LYAP" of Table 3.
    Valid: 1/(r_i + r_j) depends on the smallest eigenvalue of Z alone, never on a difference: repeated eigenvalues are
    harmless. The equation is differentiable in Z and dL/dZ by itself, so derivatives of every order are right.
    Cost: "eigen" four products, and an eigh of Z where the forward left no basis.

    Args:
        solver: "eigen", "bartels_stewart" (SciPy, the paper's reference), "kronecker" (Eq. (7), small d), "iterative"
            (products only); "auto" is "eigen", or "iterative" where that would need an eigh and the device is no CPU.
        solver_iters: Newton-Schulz steps of "iterative"; None takes the minimax polynomials.
        solver_lower: for "iterative", the square root of the `lower` of `minimax`.
    """
    if solver == "auto":
        solver = "eigen" if state.U is not None or grad_Z.device.type == "cpu" else "iterative"
    if solver == "eigen":
        root = None if state.sigma is None else state.sigma.sqrt()
        null = math.sqrt(NULL_UNITS * torch.finfo(state.A.dtype).eps)  # what counts as zero, relative to the largest
        return eigen(state.Z, grad_Z, U=state.U, r=root, null=null)
    if solver == "iterative":
        return iterative(state.Z, grad_Z, solver_iters=solver_iters, solver_lower=solver_lower)
    return SOLVERS[solver](state.Z, grad_Z)
