"""What a pooling promises the head."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Pooling:
    """A function ``fn(features, ..., *, layout, mask, options)`` to one matrix or vector an image, and what it is."""

    fn: Callable[..., Tensor]
    symmetric: bool = False  # symmetric positive semi-definite: matrix functions apply, the upper triangle is enough
    matrix: bool = True  # (B, d, e); else (B, d)
    num_inputs: int = 1
    # (X, ridge) with fn = X X^T + ridge I, from the same arguments, where there is such a thing: opens the thin path
    factor: Callable[..., tuple[Tensor, Tensor]] | None = None
    options: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parameters = inspect.signature(self.fn).parameters.values()
        names = {p.name for p in parameters if p.kind is p.KEYWORD_ONLY} - {"layout", "mask"}
        object.__setattr__(self, "options", frozenset(names))
