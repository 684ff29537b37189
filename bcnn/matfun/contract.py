"""What a matrix function, a forward algorithm and a backward rule promise each other.

m forwards and n backwards are m + n files, not m x n: they meet in `ForwardState` alone, and what a method can and
cannot do is data beside its name in a registry, never an ``if`` elsewhere.

Legend: A symmetric matrices (..., d, d); Z = f(A); U, sigma eigenvectors and eigenvalues of A; p an exponent.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor


class ForwardState(NamedTuple):
    """What a forward algorithm leaves for the backward rule; unknown fields are None."""

    A: Tensor  # (..., d, d)
    Z: Tensor  # (..., d, d)
    U: Tensor | None = None  # (..., d, d)
    sigma: Tensor | None = None  # (..., d), in the precision it was computed in
    steps: Tensor | None = None  # (), how many iterations were taken


@dataclass(frozen=True)
class SpectralFunction:
    """f(A) = U g(sigma) U^T, described by what it does to eigenvalues; `p` is the exponent where there is one."""

    name: str
    wrapper: str  # the public function, as errors name it
    g: Callable[[Tensor, Tensor | None], Tensor]  # g(sigma)
    dg: Callable[[Tensor, Tensor | None], Tensor]  # g'(sigma)
    # (g(a) - g(b)) / (a - b) for all pairs, (..., d) -> (..., d, d), written without dividing by a difference; where it
    # is infinite, between eigenvalues that cannot be told from zero given the rounding unit of A, 0
    divided_difference: Callable[[Tensor, Tensor | None, float], Tensor]
    # The least eigenvalue that g takes, given sigma and the rounding unit of A: 0, or a positive floor.
    floor: Callable[[Tensor, Tensor | None, float], Tensor]
    inverse: Callable[[Tensor, Tensor | None], Tensor]  # A again from Z, for residuals
    # sigma g'(sigma) as a matrix, from Z and p: Euler's term in the gradient through the scaling of A
    euler: Callable[[Tensor, Tensor | None], Tensor]
    dg_dp: Callable[[Tensor, Tensor], Tensor] | None = None
    p: Tensor | None = None
    # The rounding unit of A as the caller gave it, before half precision became float32; set where a plan is made.
    unit: float = torch.finfo(torch.float32).eps

    def at(self, p: Tensor | None) -> SpectralFunction:
        """The same function with a fixed exponent."""
        return self if p is None else replace(self, p=p)


Algorithm = Callable[[Tensor, SpectralFunction], ForwardState]
Rule = Callable[[ForwardState, Tensor, SpectralFunction], Tensor]


@dataclass(frozen=True)
class Method:
    """What forward algorithms and backward rules have in common."""

    fn: Callable[..., Any]
    functions: frozenset[str] | None = None  # None: any
    options: frozenset[str] = field(init=False)  # the arguments of `fn` that are given by name

    def __post_init__(self) -> None:
        given = inspect.signature(self.fn).parameters.values()
        object.__setattr__(self, "options", frozenset(p.name for p in given if p.kind is p.KEYWORD_ONLY))

    def why_not(self, function: str) -> str | None:
        """The reason why it cannot compute this function, or None."""
        if self.functions is not None and function not in self.functions:
            return f"is for {', '.join(sorted(self.functions))}"
        return None


@dataclass(frozen=True)
class ForwardMethod(Method):
    """A forward algorithm ``fn(A, f, *, options) -> ForwardState`` of A (..., d, d), and what it can do."""

    basis: bool = False  # leaves U and sigma; else `steps`
    needs_definite: bool = False  # refuses singular matrices
    for_accelerators: bool = False  # products alone, and as exact as a decomposition: "auto" off the CPU
    second_in_float32: bool = True  # whether the second derivative of its steps is right in float32
    # Its own check of the values of A, given who asks and the method's options; raises in words.
    check: Callable[..., None] | None = None

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of ForwardState that this method fills, besides A."""
        return ("Z", "U", "sigma") if self.basis else ("Z", "steps")


@dataclass(frozen=True)
class BackwardRule(Method):
    """A gradient rule ``fn(state, grad_Z, f, *, options) -> dL/dA``, grad_Z symmetric (..., d, d), and what it can do.

    `state` is what the forward has left, `f` the function.
    """

    needs_basis: bool = False  # works from U and sigma that the forward leaves
    needs_iteration: bool = False  # differentiates the iteration itself
    exact: bool = True  # the true gradient, up to rounding
    second: bool = False  # right to every order; else a second derivative is refused

    def why_not_after(self, forward: ForwardMethod) -> str | None:
        """The reason why this rule cannot follow `forward`, or None."""
        if self.needs_basis and not forward.basis:
            return "needs the eigenvectors that only a decomposition leaves"
        if self.needs_iteration and forward.basis:
            return "needs an iterative forward"
        return None
