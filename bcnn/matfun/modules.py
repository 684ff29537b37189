"""`nn.Module` twins of the matrix functions: they store options and call one function."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd, expect
from .contract import SpectralFunction
from .functions.logm import LOG, logm
from .functions.powm import POWER, powm
from .functions.sqrtm import SQRT, sqrtm
from .options import OPTIONS
from .plan import is_open, make_plan


class MatrixFunction(nn.Module):
    """Stores the options of a matrix function and shows them.

    Args:
        forward: how it is computed; `bcnn methods` lists the names.
        backward: how its gradient is computed.
        check: whether to look for input that is not finite, not symmetric or not definite.
        thin: whether to go through the n x n Gram matrix of a pooled matrix that is not formed yet (`Factored`); None
            does so where it is faster.
        **options: those of the two methods.
    """

    function: SpectralFunction
    takes: ClassVar[str] = "spd"  # see bcnn.pooling.normalize
    weighted: ClassVar[bool] = False
    further_options: ClassVar[dict[str, str]] = dict.fromkeys(sorted(OPTIONS), "of the methods; see `bcnn methods`")

    def __init__(
        self,
        *,
        forward: str = "auto",
        backward: str = "auto",
        check: bool | None = None,
        thin: bool | None = None,
        **options: Any,
    ):
        super().__init__()
        if not isinstance(thin, bool | None):
            raise ValueError(f"{self.function.wrapper}: expected `thin` to be True, False or None, got {thin!r}.")
        if thin and not is_open(forward, backward, options):
            raise ValueError(
                f"{self.function.wrapper}: expected thin=True without the names of methods, which are not for the thin "
                f"path, got forward={forward!r}, backward={backward!r} and {options or 'no further options'}."
            )
        # A wrong name or option is refused here, not in the first forward pass.
        make_plan(self.function, torch.eye(1), forward=forward, backward=backward, tolerance=None, options=options)
        self.thin = thin
        self.options: dict[str, Any] = {"forward": forward, "backward": backward, "check": check, **options}
        if thin is not None:
            self.options["thin"] = thin

    def shape(self, given: Shape) -> Shape:
        """A matrix of the same size."""
        return expect(f"matrix_{self.function.name}", Spd, given, "matrix functions follow bilinear pooling")

    def extra_repr(self) -> str:
        """Every option, as it would be written."""
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class MatrixSqrt(MatrixFunction):
    """`bcnn.sqrtm` as a module; the arguments are its options.

    Example:
        >>> MatrixSqrt(forward="newton_schulz", num_iters=5)
        MatrixSqrt(forward='newton_schulz', backward='auto', check=None, num_iters=5)
    """

    function = SQRT

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Z = A^{1/2}, shape (..., d, d), of A or of what it is made from."""
        return sqrtm(A, **self.options)


class MatrixLog(MatrixFunction):
    """`bcnn.logm` as a module; the arguments are its options."""

    function = LOG

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Z = log(A), shape (..., d, d)."""
        return logm(A, **self.options)


class MatrixPower(MatrixFunction):
    """`bcnn.powm` as a module, with an exponent that is a parameter if `learnable`.

    Args:
        p: the exponent, or its start.
        learnable: whether to make it a parameter, which an optimizer moves anywhere; the paper's are in (0, 1).
        **options: those of `powm`.

    Example:
        >>> [name for name, _ in MatrixPower(0.5, learnable=True).named_parameters()]
        ['p']
    """

    function = POWER

    def __init__(self, p: float = 0.5, *, learnable: bool = False, **options: Any):
        super().__init__(**options)
        if isinstance(p, bool) or not isinstance(p, Real) or not math.isfinite(p):
            raise ValueError(f"powm: expected `p` to be a number, got {p!r}; learnable=True makes a parameter of it.")
        self.p: float | Tensor = nn.Parameter(torch.tensor(float(p))) if learnable else float(p)

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Z = A^p, shape (..., d, d)."""
        return powm(A, self.p, **self.options)

    def extra_repr(self) -> str:
        """The exponent, then every option."""
        learnable = isinstance(self.p, Tensor)
        p = "?" if isinstance(self.p, Tensor) and self.p.is_meta else f"{float(torch.as_tensor(self.p).detach()):g}"
        return f"p={p}, learnable={learnable}, {super().extra_repr()}"
