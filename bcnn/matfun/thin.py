r"""Pooling and a matrix function in one step through the n x n Gram matrix, for fewer locations than channels.

With :math:`X = U S V^T`, s = S^2 the eigenvalues of the Gram matrix :math:`G = X^T X = V s V^T`, a_i = s_i + ridge and
Y = X V, every spectral function of A = X X^T + ridge I is

.. math:: f(A) = g(\mathrm{ridge}) I + Y \, \mathrm{diag}(h) \, Y^T, \qquad h_i = g[\mathrm{ridge}, a_i]

with divided differences g[a, b] = (g(a) - g(b)) / (a - b): no d x d decomposition, and no division by a small s.
Backwards, with Q the symmetric part of dL/dZ and T = Y^T Q Y,

.. math:: \frac{\partial L}{\partial X} = 2 \big( Q Y \mathrm{diag}(h) + Y (D \odot T) \big) V^T, \qquad
    D_{ij} = g[\mathrm{ridge}, a_i, a_j]

because the part of the Lyapunov solution that is orthogonal to U on both sides meets X in zero.

Paper: Sec. 2.2 on the matrices of Sec. 2.1; the paper always decomposes d x d.

Legend: X features in columns (..., d, n), divided by sqrt(n); Z = f(A); V, s of the Gram matrix; p an exponent (...).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import SecondDerivativeError
from ..linalg import spectrum
from ..linalg.autodiff import BatchedFunction, apply, full_precision
from ..linalg.operand import Factored
from ..linalg.products import symmetric_product
from .contract import SpectralFunction

# Up to these shares of locations to channels thin is the faster path, next to the float64 decomposition that a head
# would take otherwise: `bcnn bench pooling` has 0.77. On an accelerator, where eigh is slow next to products, untested.
MAX_SHARE_CPU = 0.8
MAX_SHARE_ACCELERATOR = 0.125

# Eigenvalues of the Gram matrix below this share of the ridge are taken for it inside D. What D multiplies there is
# smaller than its neighbour in the gradient by the same share, so that the result is exact to its square.
_LEAST_SHARE = 1e-8


def is_thin(A: Factored, thin: bool | None) -> bool:
    """Whether a function of this matrix goes through the Gram matrix: None where it is faster, True where it can.

    With n >= d nothing is gained, and the ridge's gradient would cancel; the compiler takes no Function with rules for
    `torch.func`.
    """
    if A.ridge is None or thin is False or torch.compiler.is_compiling():
        return False
    d, n = A.X.shape[-2:]
    share = MAX_SHARE_CPU if A.X.device.type == "cpu" else MAX_SHARE_ACCELERATOR
    return n < d if thin else n <= share * d


def thin_matrix_function(f: SpectralFunction, X: Tensor, ridge: Tensor, p: Tensor | float | None = None) -> Tensor:
    r"""``f(X X^T + ridge I)``, differentiable in X, in the ridge and in the exponent.

    Valid: ridge > 0, n < d; any X, zero and rank-deficient ones included. Gram matrix and eigenvectors are taken in
    float64, the large products in the precision of X: `bcnn bench pooling` shows the errors.
    First derivatives only; a second one is refused.
    Cost: products of 2 d^2 n operations, 5/8 forward and 2 backward; four of 2 d n^2; one n x n eigh.

    Args:
        f: the function, one of `FUNCTIONS`.
        X: features in columns, divided by the root of their number, shape (..., d, n).
        ridge: what is added to the diagonal, > 0, shape (...).
        p: the exponent where f has one: a number or a tensor of shape (...).

    Returns:
        Z, shape (..., d, d), of the dtype of X.
    """
    d, n = X.shape[-2:]
    if n >= d:
        raise ValueError(
            f"thin_matrix_function: expected fewer locations than channels, got {n} and {d}; pool first, and call the "
            "matrix function on A."
        )
    exponent = None
    if f.dg_dp is not None:
        exponent = torch.as_tensor(p, dtype=spectrum.widest(X), device=X.device).expand(X.shape[:-2])
    with full_precision(X):
        Z: Tensor = apply(_Thin, X, ridge, exponent, f)[0]
    return Z


class _Spectrum(NamedTuple):
    """Everything small, in float64: of length n + 1, the ridge itself in front."""

    a: Tensor  # (..., n + 1), eigenvalues of A: the ridge, then s + ridge
    K: Tensor  # (..., n + 1, n + 1), divided differences of g between them
    h: Tensor  # (..., n)
    p: Tensor | None


def _spectrum(f: SpectralFunction, s: Tensor, ridge: Tensor, p: Tensor | None) -> _Spectrum:
    ridge = ridge.to(s.dtype)[..., None]
    a = torch.cat([ridge, s.clamp_min(0) + ridge], -1)
    K = f.divided_difference(a, p, torch.finfo(a.dtype).eps)
    return _Spectrum(a, K, K[..., 0, 1:], p)


class _Thin(BatchedFunction):
    """Z, then Y, V and s for the backward pass."""

    @staticmethod
    def forward(X: Tensor, ridge: Tensor, p: Tensor | None, f: SpectralFunction) -> tuple[Tensor, ...]:
        X64 = X.to(spectrum.widest(X))
        s, V = spectrum.eigh(X64.mT @ X64)
        small = _spectrum(f, s, ridge, p)
        Y = X64 @ V  # in float64, so that its small columns have their digits, too
        Yh = (Y * small.h[..., None, :]).to(X.dtype)
        Y = Y.to(X.dtype)
        Z = symmetric_product(Yh, Y.mT)
        Z.diagonal(dim1=-2, dim2=-1).add_(f.g(small.a[..., :1], small.p).to(Z.dtype))
        return Z, Y, V.to(X.dtype), s

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, ridge, p, ctx.f = inputs
        _, Y, V, s = output
        ctx.mark_non_differentiable(Y, V, s)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(ridge, p, Y, V, s)

    @staticmethod
    def backward(ctx: Any, grad_Z: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        if grad_Z is None:
            return None, None, None, None
        ridge, p, Y, V, s = ctx.saved_tensors
        with full_precision(grad_Z):
            grad_X, grad_ridge, grad_p = apply(_ThinDerivative, ridge, p, Y, V, s, grad_Z, ctx.f)
        return grad_X, grad_ridge, None if p is None else grad_p, None

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise NotImplementedError(
            f"{ctx.f.wrapper}: forward-mode derivatives are not available on the thin path; pass thin=False to the "
            "matrix function, or form A first."
        )


class _ThinDerivative(BatchedFunction):
    """dL/dX, dL/dridge and dL/dp; a Function of its own so that a second derivative is refused, not silently wrong."""

    @staticmethod
    def forward(
        ridge: Tensor, p: Tensor | None, Y: Tensor, V: Tensor, s: Tensor, grad_Z: Tensor, f: SpectralFunction
    ) -> tuple[Tensor, Tensor, Tensor]:
        small = _spectrum(f, s, ridge, p)
        QY = (grad_Z @ Y + grad_Z.mT @ Y) / 2  # cheaper than the transpose of a large matrix
        T = Y.mT @ QY
        D = _second_differences(f, s, small)
        # D and h go with powers of s, which float32 may not hold where it holds their products.
        inner = (QY * small.h[..., None, :]).to(Y.dtype) + Y @ (D * T).to(Y.dtype)
        grad_X = 2 * inner @ V.mT
        trace_Q = grad_Z.diagonal(dim1=-2, dim2=-1).sum(-1).to(s.dtype)
        T_ii = T.diagonal(dim1=-2, dim2=-1).to(s.dtype)
        grad_ridge = _trace_against(f.dg, trace_Q, T_ii, small)
        grad_p = torch.zeros_like(grad_ridge)
        if f.dg_dp is not None:
            grad_p = _trace_against(f.dg_dp, trace_Q, T_ii, small)
        return grad_X, grad_ridge.to(ridge.dtype), grad_p if p is None else grad_p.to(p.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _: tuple[Tensor, ...]) -> None:
        ctx.wrapper = inputs[-1].wrapper

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise SecondDerivativeError(
            f"{ctx.wrapper}: second derivatives are not available on the thin path; pass thin=False to the matrix "
            "function: the square root has them then."
        )


def _second_differences(f: SpectralFunction, s: Tensor, small: _Spectrum) -> Tensor:
    """``D_ij = g[ridge, a_i, a_j] = (g[a_i, a_j] - g[ridge, a_j]) / s_i``, divided by the larger of s_i and s_j."""
    least = _LEAST_SHARE * small.a[..., :1]
    raised = torch.maximum(s, least)
    again = _spectrum(f, raised, small.a[..., 0], small.p)
    larger = torch.maximum(raised[..., :, None], raised[..., None, :])
    # h belongs to the smaller of the two.
    h_smaller = torch.where(raised[..., :, None] >= raised[..., None, :], again.h[..., None, :], again.h[..., :, None])
    return (again.K[..., 1:, 1:] - h_smaller) / larger


def _trace_against(g: Callable[..., Tensor], trace_Q: Tensor, T_ii: Tensor, small: _Spectrum) -> Tensor:
    """``<Q, U g(a) U^T>`` over all d eigenvalues of A, the ridge among them, from ``T_ii = s_i u_i^T Q u_i``."""
    ridge = small.a[..., :1]
    s = torch.maximum(small.a[..., 1:] - ridge, _LEAST_SHARE * ridge)
    at_ridge = g(ridge, small.p)
    return at_ridge[..., 0] * trace_Q + (T_ii * (g(ridge + s, small.p) - at_ridge) / s).sum(-1)
