r"""A pooled matrix that is not formed yet.

Whoever can use the factor does: a matrix function through the n x n Gram matrix, a scorer by the squares of W^T X.
Everything else calls `formed`.

Paper: Eq. (1).

Legend: X features in columns (..., d, n), divided by sqrt(n); A = X X^T + ridge I; U, sigma eigenvectors and
eigenvalues of A.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from .autodiff import full_precision
from .products import add_to_diagonal, symmetric_product
from .spectrum import compose


class Factored(NamedTuple):
    """The matrix A = X X^T + ridge I, kept as X and ridge without forming it."""

    X: Tensor  # (..., d, n)
    ridge: Tensor | None  # (...), > 0; None: there is none
    least: float | None = None  # a bound of the least eigenvalue of A over its Frobenius norm, if one is known

    def form(self) -> Tensor:
        """A, shape (..., d, d), in float32 at least: rounding to half precision would drown its small eigenvalues."""
        X = self.X.to(torch.promote_types(self.X.dtype, torch.float32))
        with full_precision(X):
            A = symmetric_product(X, X.mT)
            if self.ridge is not None:
                A = add_to_diagonal(A, self.ridge[..., None])
        return A


class Decomposed(NamedTuple):
    """The matrix A = U diag(sigma) U^T, kept as its eigenvectors and eigenvalues: for results without a gradient."""

    U: Tensor  # (..., d, d)
    sigma: Tensor  # (..., d), in the precision it was computed in

    def form(self) -> Tensor:
        """A, shape (..., d, d)."""
        with full_precision(self.U):
            return compose(self.U, self.sigma)


class Operand(Protocol):
    """Anything that can be turned into a matrix by `form()`."""

    def form(self) -> Tensor:
        """The matrix itself, shape (..., d, d)."""


def formed(A: Tensor | Operand) -> Tensor:
    """Return A as a matrix, whether it was formed already or not."""
    return A if isinstance(A, torch.Tensor) else A.form()
