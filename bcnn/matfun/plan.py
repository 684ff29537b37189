"""Chooses a forward and a backward by name, checks that they and their options make sense, and binds them.

What each method can do is read from the registries; no method is named here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import unknown_name
from ..linalg.scaling import DEFAULT_SCALE
from .backward import BACKWARDS
from .contract import Algorithm, BackwardRule, ForwardMethod, Rule, SpectralFunction
from .forward import FORWARDS
from .options import OPTIONS

# On an accelerator eigh of larger matrices is far slower than products; to be measured on one.
MAX_DIM_EIGEN_ON_ACCELERATOR = 32

# Options of a method that are set here and not by a user.
INTERNAL_OPTIONS = frozenset({"tolerance", "algorithm", "scaled_by"})


class Plan(NamedTuple):
    """A forward algorithm and a backward rule that go together, with their options."""

    function: SpectralFunction
    method: ForwardMethod
    algorithm: Algorithm
    rule: Rule
    second: bool  # whether derivatives of the rule are right
    backward: str  # its name, for errors
    keep_graph: bool  # whether autograd records the algorithm itself
    forward_options: dict[str, Any]  # bound to the algorithm
    self_adjoint: bool  # whether the rule is its own transpose, and so gives forward-mode derivatives as well


def available_pairs(function: str) -> list[tuple[str, str]]:
    """Every (forward, backward) that makes sense for a function, in registry order."""
    return [
        (forward, backward)
        for forward, method in FORWARDS.items()
        if method.why_not(function) is None
        for backward, rule in BACKWARDS.items()
        if (rule.why_not(function) or rule.why_not_after(method)) is None
    ]


def resolve_auto(function: str, device: str, d: int, forward: str = "auto", backward: str = "auto") -> tuple[str, str]:
    """What "auto" stands for: the first of the registry that fits, products rather than eigh on an accelerator."""
    pairs = available_pairs(function)
    if backward == "auto":
        follows = [b for f, b in pairs if forward in ("auto", f)]
        backward = follows[0] if follows else next(iter(BACKWARDS))
    if forward == "auto":
        fits = [f for f, b in pairs if b == backward]
        by_products = [f for f in fits if FORWARDS[f].for_accelerators]
        use_products = device != "cpu" and d > MAX_DIM_EIGEN_ON_ACCELERATOR
        fits = by_products if use_products and by_products else fits
        forward = fits[0] if fits else next(iter(FORWARDS))
    return forward, backward


def is_open(forward: str, backward: str, options: Mapping[str, Any]) -> bool:
    """Whether the methods are left to choose themselves, with no option but the precision."""
    return forward == backward == "auto" and set(options) <= {"precision"}


def methods_for(function: str, device: str, d: int, least: float | None) -> dict[str, Any]:
    """Options for methods that are left open, from what is known of the spectrum.

    Where products take the place of a decomposition, they are told how far down the spectrum goes, which saves two
    fifths of them and most of the error.
    """
    forward, _ = resolve_auto(function, device, d)
    if not FORWARDS[forward].for_accelerators or least is None or least < 16 * torch.finfo(torch.float32).eps:
        return {}
    return {"lower": least, "solver_lower": least**0.5}


def make_plan(
    function: SpectralFunction,
    A: Tensor,
    *,
    forward: str,
    backward: str,
    tolerance: float | None,
    options: dict[str, Any],
) -> Plan:
    """The plan for a call; one made before is reused. `tolerance` is for checks of the spectrum, None for none."""
    make: Callable[..., Plan] = _make_plan
    plain = all(
        value is None or isinstance(value, (str, int, float)) for value in (forward, backward, *options.values())
    )
    if torch.compiler.is_compiling() or not plain:  # a tensor or a callable must not be kept alive by a cache
        make = _make_plan.__wrapped__
    return make(function, A.device.type, A.dtype, A.shape[-1], forward, backward, tolerance, **options)


@functools.lru_cache(maxsize=256, typed=True)
def _make_plan(
    function: SpectralFunction,
    device: str,
    dtype: torch.dtype,
    d: int,
    forward: str,
    backward: str,
    tolerance: float | None,
    **options: Any,
) -> Plan:
    function = replace(function, unit=torch.finfo(dtype).eps)
    forward, backward = resolve_auto(function.name, device, d, forward, backward)
    method, rule = _lookup(function, forward, backward)
    _check_options(function.wrapper, options, forward, method, backward, rule)
    forward_options = {name: value for name, value in options.items() if name in method.options}
    rule_options = {name: value for name, value in options.items() if name in rule.options}
    if "tolerance" in method.options:
        forward_options["tolerance"] = tolerance
    algorithm: Algorithm = functools.partial(method.fn, **forward_options)
    keep_graph = False
    if rule.needs_iteration:
        keep_graph = rule_options.pop("store", True)
        rule_options["algorithm"] = algorithm
        if "scale" in method.options:
            rule_options["scaled_by"] = forward_options.get("scale", DEFAULT_SCALE)
    bound: Rule = functools.partial(rule.fn, **rule_options)
    return Plan(
        function, method, algorithm, bound, rule.second, backward, keep_graph, forward_options, not rule.needs_iteration
    )


def _lookup(function: SpectralFunction, forward: str, backward: str) -> tuple[ForwardMethod, BackwardRule]:
    who, name = function.wrapper, function.name
    pairs = available_pairs(name)
    if not isinstance(forward, str) or forward not in FORWARDS:
        raise unknown_name(who, "forward", forward, ("auto", *dict.fromkeys(f for f, _ in pairs)))
    if not isinstance(backward, str) or backward not in BACKWARDS:
        raise unknown_name(who, "backward", backward, ("auto", *dict.fromkeys(b for _, b in pairs)))
    method, rule = FORWARDS[forward], BACKWARDS[backward]
    if (forward, backward) not in pairs:
        reason = f"backward {backward!r} {rule.why_not(name) or rule.why_not_after(method)}"
        if method.why_not(name):
            reason = f"forward {forward!r} {method.why_not(name)}"
        listed = "; ".join(
            f"{f} with {', '.join(b for g, b in pairs if g == f)}" for f in dict.fromkeys(f for f, _ in pairs)
        )
        raise ValueError(f"{who}: {forward!r} with {backward!r} makes no sense: {reason}. Available: {listed}.")
    return method, rule


def _check_options(
    who: str, options: dict[str, Any], forward: str, method: ForwardMethod, backward: str, rule: BackwardRule
) -> None:
    allowed = (method.options | rule.options) - INTERNAL_OPTIONS
    for name, value in options.items():
        if name not in allowed:
            raise ValueError(
                f"{who}: unexpected option {name!r}; forward {forward!r} with backward {backward!r} takes "
                f"{', '.join(sorted(allowed)) if allowed else 'none'}."
            )
        OPTIONS[name](who, name, value)
