"""`nn.Module` twins of the matrix functions: they store options and call one function."""

from __future__ import annotations

import math
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ..linalg import checks
from ..linalg.autodiff import full_precision
from ..linalg.operand import Decomposed, Factored
from ..parts.shapes import Matrix, Shape, Spd, expect
from .compose import matrix_function
from .contract import SpectralFunction
from .factored import factored_sqrt
from .forward.eigen import spectral
from .functions import FUNCTIONS
from .options import OPTIONS, flag_or_none
from .plan import is_open, make_plan
from .thin import is_thin


class MatrixFunction(nn.Module):
    """Stores the options of a matrix function and shows them.

    Args:
        forward: the algorithm that computes it; auto: what suits the device and the size.
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
        flag_or_none(self.function.wrapper, "thin", thin)
        if thin and not is_open(forward, backward, options):
            raise ValueError(
                f"{self.function.wrapper}: expected thin=True without the names of methods, which are not for the thin "
                f"path, got forward={forward!r}, backward={backward!r} and {options or 'no further options'}."
            )
        # A wrong name or option is refused here, not in the first forward pass.
        one = torch.ones(1, 1, device="cpu")  # without content (`meta`), to make it takes torch's compiler: seconds
        make_plan(self.function, one, forward=forward, backward=backward, tolerance=None, options=options)
        self.thin = thin
        self.p: float | Tensor | None = None  # the exponent, of a function that has one
        self.options: dict[str, Any] = {"forward": forward, "backward": backward, "check": check, **options}
        if thin is not None:
            self.options["thin"] = thin

    def forward(self, A: Tensor | Factored | Decomposed) -> Tensor:
        """Z = f(A), shape (..., d, d), of A or of what it is made from."""
        if isinstance(A, Decomposed):
            return self._of_spectrum(A)
        Z = matrix_function(self.function, A, self.p, **self.options)
        assert isinstance(Z, Tensor)
        return Z

    @property
    def left_open(self) -> bool:
        """Whether no method is asked for by name, so that whatever is known of A may be used."""
        methods = {name: value for name, value in self.options.items() if name not in ("check", "thin")}
        return is_open(methods.pop("forward"), methods.pop("backward"), methods)

    def _of_spectrum(self, A: Decomposed) -> Tensor:
        """U g(sigma) U^T; domain and result are checked as after a decomposition of A."""
        p = None if self.p is None else torch.as_tensor(self.p, dtype=torch.float64).expand(A.sigma.shape[:-1])
        tolerance = checks.spectrum_tolerance(A.U.shape[-1], A.U.dtype)
        function = replace(self.function.at(p), unit=torch.finfo(A.U.dtype).eps)
        with full_precision(A.U):
            return spectral(A.U, function, lambda _: (A.sigma, A.U), precision="fast", tolerance=tolerance).Z

    def shape(self, given: Shape) -> Shape:
        """The result is a matrix of the same size."""
        remedy = "matrix functions follow bilinear pooling"
        if isinstance(given, Matrix):  # of two networks, or rows of words
            remedy += ", and any other matrix has singular_power, a power of its singular values"
        return expect(f"matrix_{self.function.name}", Spd, given, remedy)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class MatrixSqrt(MatrixFunction):
    """`bcnn.sqrtm` as a module; the arguments are its options.

    Example:
        >>> MatrixSqrt(forward="newton_schulz", num_iters=5)
        MatrixSqrt(forward='newton_schulz', backward='auto', check=None, num_iters=5)
    """

    function = FUNCTIONS["sqrt"]

    def on_factored(self, A: Factored) -> Tensor | Factored:
        """The same, not formed where the thin path is taken and no method is named."""
        return factored_sqrt(A) if self.left_open and is_thin(A, self.thin) else self(A)


class MatrixLog(MatrixFunction):
    """`bcnn.logm` as a module; the arguments are its options."""

    function = FUNCTIONS["log"]


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

    function = FUNCTIONS["power"]

    def __init__(self, p: float = 0.5, *, learnable: bool = False, **options: Any):
        super().__init__(**options)
        if isinstance(p, bool) or not isinstance(p, Real) or not math.isfinite(p):
            raise ValueError(f"powm: expected `p` to be a number, got {p!r}; learnable=True makes a parameter of it.")
        self.p = nn.Parameter(torch.tensor(float(p))) if learnable else float(p)

    def extra_repr(self) -> str:
        learnable = isinstance(self.p, Tensor)
        p = "?" if isinstance(self.p, Tensor) and self.p.is_meta else f"{float(torch.as_tensor(self.p).detach()):g}"
        return f"p={p}, learnable={learnable}, {super().extra_repr()}"
