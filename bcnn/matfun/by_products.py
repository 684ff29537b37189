r"""Matrix functions by products alone, for files that other programs run: ONNX knows no decomposition.

The square root is `minimax`, the logarithm `inverse_scaling_squaring`, and a power goes the same way: k square roots
bring the spectrum close to 1, where the binomial series converges quickly, and k squarings lead back.

.. math:: A^p = s^p \Big( \sum_j \tbinom{p}{j} (B - I)^j \Big)^{2^k}, \qquad B = (A / s)^{1/2^k}

Paper: Sec. 2.2, "Matrix square-root by Newton iterations", and the series at its end.

Legend: A positive semi-definite matrices (..., d, d); s a bound of their largest eigenvalue; k the number of roots.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..linalg.autodiff import full_precision
from ..linalg.operand import Factored, formed
from ..linalg.products import add_to_diagonal, polynomial
from ..linalg.scaling import scale_of
from ..parts.shapes import Shape
from .forward import FORWARDS
from .forward.inverse_scaling_squaring import SERIES_RADIUS, inverse_scaling_squaring, roots_for
from .forward.minimax import minimax, polynomials_for
from .forward.newton_schulz import coupled_iteration
from .modules import MatrixFunction


class ByProducts(nn.Module):
    """A matrix function of a head in a form that can be exported: products and sums, no gradient, no look at values.

    Args:
        given: the function as the head has it. One that iterates already is kept to the letter.
        dtype: the precision of the products; the result comes in that of A.
        lower: least eigenvalue over the scale that has to come out right; None: what is known of A from its ridge, or
            the rounding of float32.
    """

    takes: ClassVar[str] = "spd"
    weighted: ClassVar[bool] = False

    def __init__(self, given: MatrixFunction, *, dtype: torch.dtype = torch.float32, lower: float | None = None):
        super().__init__()
        self.function, self.dtype, self.lower = given.function, dtype, lower
        own = {name: value for name, value in given.options.items() if name not in ("check", "thin", "backward")}
        method = FORWARDS.get(own.pop("forward"))
        iterates = method is not None and not method.basis and method is not FORWARDS["denman_beavers"]
        self.own = (method, {n: v for n, v in own.items() if n in method.options}) if iterates and method else None
        self.p = None if given.p is None else float(torch.as_tensor(given.p).detach())

    @property
    def can_be_refined(self) -> bool:
        """Whether another precision or range would change anything: an iteration that was trained with stays."""
        return self.own is None

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Z = f(A), shape (..., d, d)."""
        lower = self.lower or (A.least if isinstance(A, Factored) else None) or torch.finfo(torch.float32).eps
        matrix = formed(A)
        with full_precision(matrix):
            S = matrix.to(self.dtype if self.own is None else matrix.dtype)
            return self._apply_to((S + S.mT) / 2, lower).to(matrix.dtype)

    def _apply_to(self, S: Tensor, lower: float) -> Tensor:
        if self.own is not None:
            method, options = self.own
            Z: Tensor = method.fn(S, self.function, **options).Z
            return Z
        if self.p is not None:
            return power_by_products(S, self.p, lower=lower)
        if self.function.name == "sqrt":
            return minimax(S, self.function, lower=lower).Z
        return inverse_scaling_squaring(S, self.function, lower=lower).Z

    def shape(self, given: Shape) -> Shape:
        """A matrix of the same size."""
        return given

    def __str__(self) -> str:
        """What it computes and how, for people."""
        if self.own is not None:
            return f"{self.function.name} by its own iteration, {self.own[1] or 'as it is by default'}"
        how = {"sqrt": "minimax polynomials"}.get(self.function.name, "repeated square roots and a series")
        return f"{self.function.name} by {how} in {str(self.dtype).removeprefix('torch.')}"


def power_by_products(A: Tensor, p: float, *, lower: float) -> Tensor:
    """``A^p`` for any real p.

    Valid: eigenvalues in [lower, 1] times the Frobenius norm of A. The squarings lose k bits, which float64 has.
    Cost: k square roots of falling price, one product a term of the series, k squarings.

    Args:
        A: positive definite matrices, shape (..., d, d).
        p: the exponent.
        lower: least eigenvalue over the norm.

    Example:
        >>> power_by_products(8 * torch.eye(2, dtype=torch.float64), 1 / 3, lower=0.1)
        tensor([[2.0000, 0.0000],
                [0.0000, 2.0000]], dtype=torch.float64)
    """
    eps = torch.finfo(A.dtype).eps
    s = scale_of(A, "frobenius")
    k = roots_for(lower, SERIES_RADIUS)
    B = A / s
    for i in range(k):
        B, _ = coupled_iteration(B, polynomials_for("powm", A.dtype, None, None, lower ** (0.5**i)))
    radius = 1 - lower ** (0.5**k)
    terms = max(1, math.ceil(math.log(eps) / math.log(radius)))
    Z = polynomial(_binomial(p, terms), add_to_diagonal(B, -1.0))
    for _ in range(k):
        Z = Z @ Z
    return Z * s**p


def _binomial(p: float, terms: int) -> list[float]:
    """The coefficients of (1 + x)^p, from that of x^0 to that of x^terms."""
    coefficients = [1.0]
    for j in range(1, terms + 1):
        coefficients.append(coefficients[-1] * (p - j + 1) / j)
    return coefficients


def product_forms(module: nn.Module, **options: Any) -> None:
    """Put the product-only form in the place of every matrix function below a module, in place."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MatrixFunction):
                setattr(parent, name, ByProducts(child, **options))
