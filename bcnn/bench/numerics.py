"""What the benchmarks compare with, and how: the usual ways to a matrix function, its gradient, the error of both.

Legend: A symmetric matrices (..., d, d); Z = f(A), with g the function of the eigenvalues; G = dL/dZ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..linalg.autodiff import apply

MatrixFunction = Callable[[Tensor], Tensor]


def by_eigh(A: Tensor, g: Callable[[Tensor], Tensor] = torch.sqrt) -> Tensor:
    """f(A) as most people write it; the square root unless `g` says otherwise."""
    sigma, U = torch.linalg.eigh(A)
    return torch.matmul(U * g(sigma)[..., None, :], U.mT)


def by_svd(A: Tensor, g: Callable[[Tensor], Tensor] = torch.sqrt) -> Tensor:
    """The same through a singular value decomposition."""
    U, sigma, _ = torch.linalg.svd(A)
    return torch.matmul(U * g(sigma)[..., None, :], U.mT)


def bare_root(A: Tensor) -> Tensor:
    """The least that a root exact to float32 can take with eigh: no checks, no edges, symmetric A and dL/dZ."""
    Z: Tensor = apply(_BareRoot, A)
    return Z


class _BareRoot(torch.autograd.Function):
    """eigh in float64, and the five products of the root and of Eq. (6) in the precision of A."""

    @staticmethod
    def forward(ctx: Any, A: Tensor) -> Tensor:
        sigma, U = torch.linalg.eigh(A.double())
        U, r = U.to(A.dtype), sigma.sqrt().to(A.dtype)
        ctx.save_for_backward(U, r)
        return torch.matmul(U * r[..., None, :], U.mT)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> Tensor:
        U, r = ctx.saved_tensors
        X: Tensor = U @ ((U.mT @ G @ U) / (r[..., :, None] + r[..., None, :])) @ U.mT
        return X


def value_and_gradient(function: MatrixFunction, X: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """Z = function(X), and dL/dX for dL/dZ = G."""
    leaf = X.detach().clone().requires_grad_()
    Z = function(leaf)
    (gradient,) = torch.autograd.grad(Z, leaf, G)
    return Z.detach(), gradient


def worst_error(value: Tensor, exact: Tensor) -> float:
    """Relative error in the Frobenius norm, the worst of the batch; NaN where a value is not finite."""
    size = torch.linalg.matrix_norm(exact)
    size = torch.where(size > 0, size, exact.shape[-1] ** 0.5)  # log(I) = 0: relative to I
    error = torch.linalg.matrix_norm(value.double().cpu() - exact) / size
    return float(error.max())  # NaN wins: max propagates it
