"""Builders of test matrices, independent references, and the one table of tolerances."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

import bcnn
from bcnn.matfun.backward import BACKWARDS
from bcnn.matfun.forward import FORWARDS
from bcnn.matfun.plan import available_pairs

EXPONENT = 0.3


def spd(*batch: int, d: int = 6, cond: float = 1e2, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """Matrices with random eigenvectors and eigenvalues spaced evenly in the logarithm, largest 1."""
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(*batch, d, d, generator=generator, dtype=torch.float64)).Q
    sigma = torch.logspace(0, -float(np.log10(cond)), d, dtype=torch.float64)
    return symmetric((Q * sigma) @ Q.mT).to(dtype)


def with_spectrum(sigma: list[float], *, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    """One matrix with these eigenvalues and random eigenvectors."""
    generator = torch.Generator().manual_seed(seed)
    d = len(sigma)
    Q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    return symmetric((Q * torch.tensor(sigma, dtype=torch.float64)) @ Q.mT).to(dtype)


def symmetric(A: Tensor) -> Tensor:
    return (A + A.mT) / 2


def random_like(A: Tensor, seed: int = 1) -> Tensor:
    return torch.randn(A.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(A.dtype)


def relative_error(value: Tensor, exact: Tensor) -> float:
    value, exact = value.detach().double(), exact.detach().double()
    return float((torch.linalg.matrix_norm(value - exact) / torch.linalg.matrix_norm(exact)).max())


# --- the functions and their independent references (SciPy, float64) --------------------------------------------------

FUNCTION: dict[str, Callable[..., Any]] = {
    "sqrt": bcnn.sqrtm,
    "log": bcnn.logm,
    "power": partial(bcnn.powm, p=EXPONENT),
}
SCIPY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sqrt": scipy.linalg.sqrtm,
    "log": scipy.linalg.logm,
    "power": lambda A: scipy.linalg.fractional_matrix_power(A, EXPONENT),
}
LAW: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": lambda Z: Z @ Z,
    "log": torch.linalg.matrix_exp,
    "power": lambda Z: torch.from_numpy(np.real(scipy.linalg.fractional_matrix_power(Z.numpy(), 1 / EXPONENT))),
}


def reference(function: str, A: Tensor) -> Tensor:
    flat = A.detach().double().reshape(-1, *A.shape[-2:]).numpy()
    return torch.from_numpy(np.stack([np.real(SCIPY[function](a)) for a in flat])).reshape(A.shape)


def reference_gradient(function: str, A: Tensor, G: Tensor) -> Tensor:
    """The Fréchet derivative of f at A along G, self-adjoint: the upper right block of f([[A, G], [0, A]])."""
    d = A.shape[-1]
    flat = zip(
        A.detach().double().reshape(-1, d, d).numpy(), symmetric(G).double().reshape(-1, d, d).numpy(), strict=True
    )
    blocks = [SCIPY[function](np.block([[a, g], [np.zeros_like(a), a]]))[:d, d:] for a, g in flat]
    return torch.from_numpy(np.stack([np.real(b) for b in blocks])).reshape(A.shape)


# --- every method, with options that run it to convergence ------------------------------------------------------------

CONVERGED: dict[str, dict[str, Any]] = {
    "newton_schulz": {"num_iters": 40},
    "denman_beavers": {"num_iters": 12},
    "minimax": {"lower": 1e-8},
    "inverse_scaling_squaring": {"lower": 1e-8},
}

# Relative errors in float64 at condition number 100. An iteration loses what its smallest eigenvalue, 1e-2, loses;
# repeated roots of the logarithm lose a few bits more.
FORWARD_TOLERANCE = {"eigen": 1e-13, "svd": 1e-13, "denman_beavers": 1e-13, "newton_schulz": 1e-12, "minimax": 1e-12,
                     "inverse_scaling_squaring": 1e-11}  # fmt: skip
# Relative gradient errors, same matrices: the rule's own, or the iteration's where it differentiates it. The scaled
# coupled iteration amplifies rounding by the square of the range that `lower` asks for.
GRADIENT_TOLERANCE = {"lyapunov": 1e-12, "loewner": 1e-12, "svd": 1e-9, "unrolled": 1e-6}

ALL_FORWARDS = [(name, f) for name in FUNCTION for f in dict.fromkeys(f for f, _ in available_pairs(name))]
ALL_PAIRS = [(name, f, b) for name in FUNCTION for f, b in available_pairs(name)]
EXACT_PAIRS = [(name, f, b) for name, f, b in ALL_PAIRS if BACKWARDS[b].exact]
SEMIDEFINITE_FORWARDS = [(name, f) for name, f in ALL_FORWARDS if name != "log" and not FORWARDS[f].needs_definite]


def call(function: str, forward: str = "auto", backward: str = "auto", **options: Any) -> Callable[[Tensor], Tensor]:
    """The function with its methods named, iterations run to convergence."""
    return partial(FUNCTION[function], forward=forward, backward=backward, **{**CONVERGED.get(forward, {}), **options})


def gradient(f: Callable[[Tensor], Tensor], A: Tensor, G: Tensor) -> Tensor:
    leaf = A.detach().clone().requires_grad_()
    (result,) = torch.autograd.grad(f(leaf), leaf, G)
    return result


def solver_options() -> Iterator[dict[str, Any]]:
    yield from ({"solver": s} for s in ("eigen", "bartels_stewart", "kronecker", "iterative"))
    yield {"solver": "iterative", "solver_iters": 30}
