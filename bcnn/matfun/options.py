"""What the options of the methods may be, by name: checked once, where they enter."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from numbers import Integral, Real
from typing import Any

from torch import Tensor

from ..errors import unknown_name
from ..linalg.lyapunov import SOLVERS
from ..linalg.scaling import SCALES

Check = Callable[[str, str, Any], None]  # who, name, value

PRECISIONS = ("high", "fast")


def one_of(names: Collection[str], *, or_tensor: bool = False) -> Check:
    """One of these names; or, where that makes sense, a tensor."""

    def check(who: str, name: str, value: Any) -> None:
        if not (or_tensor and isinstance(value, Tensor)) and not (isinstance(value, str) and value in names):
            raise unknown_name(who, name, value, names)

    return check


def number(expected: str, is_right: Callable[[Any], bool], kind: type = Real) -> Check:
    """A number for which `is_right` holds, or None for the default."""

    def check(who: str, name: str, value: Any) -> None:
        if value is not None and not (isinstance(value, kind) and is_right(value)):
            raise ValueError(f"{who}: expected `{name}` to be {expected}, got {value!r}.")

    return check


def flag(who: str, name: str, value: Any) -> None:
    """Accept True or False."""
    if not isinstance(value, bool):
        raise ValueError(f"{who}: expected `{name}` to be True or False, got {value!r}.")


def flag_or_none(who: str, name: str, value: Any) -> None:
    """True, False, or None where the function may choose."""
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{who}: expected `{name}` to be True, False or None, got {value!r}.")


def function(who: str, name: str, value: Any) -> None:
    """Accept anything that can be called."""
    if not callable(value):
        raise ValueError(f"{who}: expected `{name}` to be callable, got {value!r}.")


MAX_STEPS = 1000  # far beyond where any method ends; a file that asks for more wants to keep the machine busy
_STEPS = number(f"a whole number from 0 to {MAX_STEPS}", lambda n: 0 <= n <= MAX_STEPS, Integral)
_POSITIVE = number("a number > 0", lambda x: 0 < x < math.inf)
_RATIO = number("in (0, 1], the least eigenvalue over the scale", lambda x: 0 < x <= 1)

OPTIONS: dict[str, Check] = {
    "precision": one_of(PRECISIONS),
    "num_iters": _STEPS,
    "num_roots": _STEPS,
    "tol": _POSITIVE,
    "lower": _RATIO,
    "scale": one_of(SCALES, or_tensor=True),
    "scaled": flag,
    "solver": one_of(("auto", *SOLVERS)),
    "solver_iters": number(f"a whole number from 1 to {MAX_STEPS}", lambda n: 1 <= n <= MAX_STEPS, Integral),
    "solver_lower": _RATIO,
    "tau": number("a number >= 0", lambda x: 0 <= x < math.inf),
    "report": function,
    "store": flag,
}
