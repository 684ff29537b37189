"""How precise roots and gradients are, method by method, in one regime and one dtype.

Paper: Sec. 3.5, "SVD gradients are orders of magnitude less precise than Lyapunov gradients".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ...bench.precision import METHODS, Precision, measure
from ...bench.regimes import REGIMES
from ..gauge import Gauge
from ..records import Outcome
from ..workshop import Workshop
from .source import Source

SCALES = {"trace": "trace", "top": "largest"}  # regimes of real matrices, and what `bcnn.Head` calls their ridge
_COST = 12.0  # of a method with its share of the exact solution, in eigendecompositions; as measured


@dataclass(frozen=True)
class GradientErrorsResult:
    """Errors, one entry per method, and what the matrices are like."""

    dim: int
    condition: float  # the median over the matrices
    errors: tuple[Precision, ...]


@dataclass(frozen=True)
class GradientErrors:
    """Relative errors of every method of `bench.precision.METHODS`."""

    kind: ClassVar[str] = "gradient_errors"
    regime: str  # of `REGIMES`, or the scale of the ridge of real matrices
    dtype: str
    batch: int
    dim: int | None = None  # of made-up matrices
    source: Source | None = None  # of real ones
    eps: float | None = None
    seed: int = 0

    @property
    def name(self) -> str:
        words = (self.kind, self.regime, self.dtype)
        return ", ".join(words) if self.source is None else self.source.name_with(*words)

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        return () if self.source is None else ((self.source, "bilinear"),)

    def seconds(self, gauge: Gauge) -> float:
        """An estimate: a few decompositions per method."""
        dim = self.dim if self.source is None else gauge.view(self.source.network, self.source.size).channels
        assert dim is not None
        return _COST * len(METHODS) * self.batch * gauge.matrix_s(dim, dtype=torch.float64)

    def run(self, shop: Workshop) -> Outcome[GradientErrorsResult]:
        """Measure all methods on the same matrices."""
        A = self._matrices(shop).to(getattr(torch, self.dtype))
        G = torch.randn(A.shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64).to(A.dtype)
        errors = tuple(measure(A, (G + G.mT) / 2, progress=shop.progress, stage=self.name))
        sigma = torch.linalg.eigvalsh(A.double())
        condition = float((sigma[:, -1] / sigma[:, 0]).median())
        return Outcome(GradientErrorsResult(A.shape[-1], condition, errors))

    def _matrices(self, shop: Workshop) -> Tensor:
        if self.source is not None:
            assert self.eps is not None
            return self.source.matrices(shop, eps=self.eps, count=self.batch, scale=SCALES[self.regime])
        assert self.dim is not None
        return REGIMES[self.regime](self.batch, self.dim, torch.Generator().manual_seed(self.seed))
