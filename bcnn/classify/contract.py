"""What a classifier is: a solver over the Gram matrix, and what its scores mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


class Solution(Protocol):
    """What every solver returns."""

    @property
    def beta(self) -> Tensor:
        """Weights as combinations of the samples, shape (n, k)."""
        ...

    @property
    def bias(self) -> Tensor:
        """Shape (k,)."""
        ...

    @property
    def gap(self) -> float:
        """How far the objective may be from the best."""
        ...

    @property
    def num_iters(self) -> int:
        """Iterations."""
        ...

    @property
    def converged(self) -> bool:
        """Whether the tolerance was met."""
        ...


@dataclass(frozen=True)
class ClassifierKind:
    """A solver and what can be said about it."""

    # solve(K or a kernel, labels, num_classes, *, C, sample_weight, tol, warm, progress), which says "train"
    solve: Callable[..., Solution]
    about: str
    one_vs_rest: bool  # scores of two classes are f and -f
    streamed: Callable[..., Any] | None = None  # `stream.StreamedSVM`, or none: descriptors have to be kept
    temperature: float = 0.5  # of the scores, where there are too few images to measure it; margins aim at +-1
