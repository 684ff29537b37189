r"""How precise are SVD and Lyapunov gradients? Root and gradient of every method against the exact ones.

The paper: "SVD gradients are orders of magnitude less precise than Lyapunov gradients" (Sec. 3.5), in single precision
and on its own features. Here the same question by regime (`regimes`) and by dtype, float64 included: the reference has
more digits than that (`extended`).

Cost: about four seconds per matrix for d = 512 on one core, half of them for the reference.

Legend: A symmetric positive definite matrices (batch, d, d); Z = A^{1/2}; G = dL/dZ; U, sigma eigenvectors and
eigenvalues of A.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import GradientExceptionWarning
from ..matfun.functions.sqrtm import sqrtm
from ..progress import Progress, silent
from .extended import Extended, exact_root_and_gradient, to_extended
from .numerics import MatrixFunction, by_eigh, by_svd


@dataclass(frozen=True)
class Precision:
    """How far a method's root and gradient are from the exact ones; the worst of the matrices.

    An error is the worst among the matrices where the root, or the gradient, is finite, and NaN only where it is finite
    for none; `num_nonfinite` tells how many are left out. A decomposition that gives up counts as not finite.
    """

    method: str  # a key of METHODS
    root_error: float  # relative, Frobenius; NaN where not finite
    gradient_error: float
    num_nonfinite: int  # matrices with an infinite or NaN root or gradient
    num_matrices: int


def _ours(**options: Any) -> MatrixFunction:
    """`sqrtm`; what "auto" would choose by device is to be named, so that a table means one thing."""
    wrapper: Callable[..., Any] = sqrtm
    return partial(wrapper, **options)


METHODS: dict[str, MatrixFunction] = {
    "eigh + autograd": by_eigh,  # as other people write it
    "svd + autograd": by_svd,
    "svd": _ours(forward="svd", backward="svd", precision="fast"),  # Eq. (2)-(4)
    # What fails it sets to zero: an error of 1.
    "svd_truncated": _ours(forward="svd", backward="svd_truncated", precision="fast"),
    "lyapunov": _ours(forward="svd", backward="lyapunov", precision="fast"),  # Eq. (6), in the same basis as "svd"
    # Both rules with a basis that is better than either: what the rule itself loses.
    "svd, high precision": _ours(forward="eigen", backward="svd"),
    "lyapunov, high precision": _ours(forward="eigen", backward="lyapunov"),
    "newton_schulz 20 + lyapunov": _ours(forward="newton_schulz", num_iters=20, backward="lyapunov", solver="eigen"),
    "newton_schulz 5 + unrolled": _ours(forward="newton_schulz", num_iters=5, backward="unrolled"),
    "newton_schulz 20 + unrolled": _ours(forward="newton_schulz", num_iters=20, backward="unrolled"),
}
SINGLE_ONLY = frozenset({"svd, high precision", "lyapunov, high precision"})  # they use float64 inside


def methods_for(dtype: torch.dtype) -> dict[str, MatrixFunction]:
    """Return the methods that make sense for a dtype."""
    left_out = SINGLE_ONLY if dtype == torch.float64 else frozenset()
    return {name: method for name, method in METHODS.items() if name not in left_out}


def measure(A: Tensor, G: Tensor, *, progress: Progress = silent, stage: str = "precision") -> list[Precision]:
    """Errors of every method of `methods_for` the dtype of A, in the order of `METHODS`.

    Paper: Sec. 3.5. The gradients are made symmetric before they are compared: eigh reads one triangle only.
    Cost: see `extended`; the methods run one matrix at a time, so that one failure is not that of the batch.

    Args:
        A: symmetric positive definite matrices, float32 or float64, the dtype that is measured, shape (batch, d, d).
        G: dL/dZ, symmetric, same shape and dtype.
        progress: hears of each matrix, at this `stage`.
    """
    A, G = (A + A.mT) / 2, (G + G.mT) / 2  # of the last bits too: a product X X^T need not be symmetric in them
    methods = methods_for(A.dtype)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in methods}
    for i in range(len(A)):
        a, g = A[i : i + 1], G[i : i + 1]
        Z, X = exact_root_and_gradient(a, g)
        for name, method in methods.items():
            root, gradient = _run(method, a, g)
            found[name].append((_error(root, Z), _error(gradient, X)))
        progress(stage, i + 1, len(A))
    return [
        Precision(
            method=name,
            root_error=_worst(root for root, _ in errors),
            gradient_error=_worst(gradient for _, gradient in errors),
            num_nonfinite=sum(math.isnan(root) or math.isnan(gradient) for root, gradient in errors),
            num_matrices=len(errors),
        )
        for name, errors in found.items()
    ]


def _run(method: MatrixFunction, A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Z and dL/dA as the method has them; NaN from one that gives up."""
    leaf = A.detach().clone().requires_grad_()
    Z = X = torch.full_like(A, math.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientExceptionWarning)  # they are counted
        try:
            root = method(leaf)
            Z = root.detach()
            (X,) = torch.autograd.grad(root, leaf, G)
        except (torch.linalg.LinAlgError, ArithmeticError):
            pass  # eigh did not converge, or rounding made it negative; the input is known to be sound
    return Z, (X + X.mT) / 2


def _error(value: Tensor, exact: Extended) -> float:
    """Relative, in extended precision; NaN where the value is not finite."""
    if not bool(value.isfinite().all()):
        return math.nan
    difference = to_extended(value) - exact
    return float(np.sqrt((difference**2).sum() / (exact**2).sum()))


def _worst(errors: Iterable[float]) -> float:
    return max((error for error in errors if not math.isnan(error)), default=math.nan)
