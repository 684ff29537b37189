r"""A matrix function of a pooled matrix by its factors, for whoever does not need it formed.

With G = X^T X the Gram matrix and h(s) = g[ridge, ridge + s], every spectral function of A = X X^T + ridge I is

.. math:: f(A) = X M^T + c I, \qquad M = X h(G), \quad c = g(\mathrm{ridge})

so that a linear map of f(A), such as a sketch, needs the columns of X and of M only: 2 d n numbers and not d^2. For the
square root without a ridge, X M^T = Y^T Y with the rows of Y = S^(1/2) V^T of MoNet. Backwards, with N = dL/dM,

.. math:: \frac{\partial L}{\partial X} = N h(G) + 2 X V (D \odot \mathrm{sym}(V^T X^T N V)) V^T

with D as in `thin`.

Paper: Sec. 2.2 on the matrices of Sec. 2.1; Gou et al., *MoNet*, CVPR 2018, for the factor.

Legend: X features in columns (..., d, n), divided by sqrt(n); V, s of the Gram matrix; p an exponent (...).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..linalg import spectrum
from ..linalg.autodiff import apply, full_precision, is_transformed
from ..linalg.operand import Factored
from .contract import SpectralFunction
from .modules import MatrixFunction
from .thin import _LEAST_SHARE, _second_differences, _spectrum, is_thin


class Applied(NamedTuple):
    """The matrix f(A), which has not been computed yet."""

    function: MatrixFunction
    A: Tensor | Factored

    def form(self) -> Tensor:
        """f(A), shape (..., d, d)."""
        Z: Tensor = self.function(self.A)
        return Z


def columns_of(A: Tensor | Factored | Applied) -> Tensor | None:
    """X, if A is X M^T + c I with fewer numbers than d^2; None where there is no way around the matrix itself."""
    if isinstance(A, Factored):
        return A.X
    if not isinstance(A, Applied) or not isinstance(A.A, Factored) or is_transformed():
        return None
    return A.A.X if A.function.left_open and is_thin(A.A, A.function.thin) else None


def factors_of(A: Factored | Applied) -> tuple[Tensor, Tensor, Tensor | None]:
    """``X, M, c`` with A = X M^T + c I, shapes (..., d, n), (..., d, n) and (...); of an A that has `columns_of`."""
    if isinstance(A, Factored):
        return A.X, A.X, A.ridge
    assert isinstance(A.A, Factored)
    assert A.A.ridge is not None
    X, ridge, f = A.A.X, A.A.ridge, A.function.function
    p = None
    if f.dg_dp is not None:
        p = torch.as_tensor(getattr(A.function, "p", None), dtype=spectrum.widest(X), device=X.device)
        p = p.expand(X.shape[:-2])
    with full_precision(X):
        M: Tensor = apply(_ThinFactor, X, ridge, p, f)[0]
    c = f.g(ridge[..., None].to(spectrum.widest(X)), p)[..., 0]
    return X, M, c.to(X.dtype)


class _ThinFactor(torch.autograd.Function):
    """M, then V and s for the backward pass; what is small in float64."""

    @staticmethod
    def forward(X: Tensor, ridge: Tensor, p: Tensor | None, f: SpectralFunction) -> tuple[Tensor, ...]:
        X64 = X.to(spectrum.widest(X))
        s, V = spectrum.eigh(X64.mT @ X64)
        M = (X64 @ V) * _spectrum(f, s, ridge, p).h[..., None, :] @ V.mT
        return M.to(X.dtype), V, s

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        X, ridge, p, ctx.f = inputs
        _, V, s = output
        ctx.mark_non_differentiable(V, s)
        ctx.save_for_backward(X, ridge, p, V, s)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, N: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        X, ridge, p, V, s = ctx.saved_tensors
        f: SpectralFunction = ctx.f
        small = _spectrum(f, s, ridge, p)
        with full_precision(X):
            XV, NV = X.to(V.dtype) @ V, N.to(V.dtype) @ V
            Q = XV.mT @ NV
            inner = NV * small.h[..., None, :] + XV @ (_second_differences(f, s, small) * (Q + Q.mT))
            grad_X = (inner @ V.mT).to(X.dtype)
        along = Q.diagonal(dim1=-2, dim2=-1)
        grad_ridge = _against(f.dg, along, small).to(ridge.dtype)
        grad_p = None if p is None or f.dg_dp is None else _against(f.dg_dp, along, small).to(p.dtype)
        return grad_X, grad_ridge, grad_p, None


def _against(g: Any, along: Tensor, small: Any) -> Tensor:
    """The sum of Q_ii (g(a_i) - g(ridge)) / s_i: the derivative of h along that of g."""
    ridge = small.a[..., :1]
    s = torch.maximum(small.a[..., 1:] - ridge, _LEAST_SHARE * ridge)
    result: Tensor = (along * (g(ridge + s, small.p) - g(ridge, small.p)) / s).sum(-1)
    return result
