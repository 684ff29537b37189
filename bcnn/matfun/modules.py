"""`nn.Module` twins of the matrix functions: they store options and call one function."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor, nn

from .contract import SpectralFunction
from .functions.logm import LOG, logm
from .functions.powm import POWER, powm
from .functions.sqrtm import SQRT, sqrtm
from .plan import make_plan


class MatrixFunction(nn.Module):
    """Stores the options of a matrix function and shows them."""

    function: SpectralFunction

    def __init__(self, *, forward: str = "auto", backward: str = "auto", check: bool | None = None, **options: Any):
        super().__init__()
        self.options: dict[str, Any] = {"forward": forward, "backward": backward, "check": check, **options}
        # A wrong name or option is refused here, not in the first forward pass.
        make_plan(self.function, torch.eye(1), forward=forward, backward=backward, tolerance=None, options=options)

    @property
    def open_methods(self) -> bool:
        """Whether forward and backward are left to choose themselves, with no option but the precision."""
        methods = self.options["forward"] == self.options["backward"] == "auto"
        return methods and set(self.options) <= {"forward", "backward", "check", "precision"}

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

    def forward(self, A: Tensor, **defaults: Any) -> Tensor:
        """Z = A^{1/2}, shape (..., d, d); `defaults` are options that the module's own go before."""
        return sqrtm(A, **{**defaults, **self.options})


class MatrixLog(MatrixFunction):
    """`bcnn.logm` as a module; the arguments are its options."""

    function = LOG

    def forward(self, A: Tensor, **defaults: Any) -> Tensor:
        """Z = log(A), shape (..., d, d); `defaults` as in `MatrixSqrt`."""
        return logm(A, **{**defaults, **self.options})


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

    def forward(self, A: Tensor, **defaults: Any) -> Tensor:
        """Z = A^p, shape (..., d, d); `defaults` as in `MatrixSqrt`."""
        return powm(A, self.p, **{**defaults, **self.options})

    def extra_repr(self) -> str:
        """The exponent, then every option."""
        learnable = isinstance(self.p, Tensor)
        p = "?" if isinstance(self.p, Tensor) and self.p.is_meta else f"{float(torch.as_tensor(self.p).detach()):g}"
        return f"p={p}, learnable={learnable}, {super().extra_repr()}"
