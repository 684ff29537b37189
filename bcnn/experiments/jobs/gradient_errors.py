"""How precise roots and gradients are, method by method, in one regime and one dtype.

Paper: Sec. 3.5, "SVD gradients are orders of magnitude less precise than Lyapunov gradients".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from ...bench.precision import METHODS, measure
from ...bench.regimes import REGIMES
from .frozen import Source
from .real import real_matrices

if TYPE_CHECKING:
    from ..gauge import Gauge
    from ..workshop import Workshop

_COST = 12.0  # of a method with its share of the exact solution, in eigendecompositions; as measured


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
        """Regime and dtype."""
        origin = "made up" if self.source is None else f"{self.source.dataset}, {self.source.network}"
        return f"gradient errors: {origin}, {self.regime}, {self.dtype}"

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        """Pooled matrices, of real ones."""
        return () if self.source is None else ((self.source, "bilinear"),)

    @property
    def before(self) -> tuple[Any, ...]:
        """Nothing."""
        return ()

    def seconds(self, gauge: Gauge) -> float:
        """A few decompositions a method."""
        dim = self.dim if self.source is None else gauge.dim(self.source)
        assert dim is not None
        return _COST * len(METHODS) * self.batch * gauge.matrix_s(dim, dtype=torch.float64)

    def run(self, shop: Workshop) -> dict[str, Any]:
        """One entry a method."""
        A = self._matrices(shop).to(getattr(torch, self.dtype))
        G = torch.randn(A.shape, generator=torch.Generator().manual_seed(self.seed), dtype=torch.float64).to(A.dtype)
        rows = measure(A, (G + G.mT) / 2, tick=lambda done, total: shop.tick(self.name, done, total))
        sigma = torch.linalg.eigvalsh(A.double())
        return {
            "dim": A.shape[-1],
            "condition": float((sigma[:, -1] / sigma[:, 0]).median()),
            "errors": [{name: _finite(value) for name, value in asdict(row).items()} for row in rows],
        }

    def _matrices(self, shop: Workshop) -> Tensor:
        if self.source is not None:
            assert self.eps is not None
            return real_matrices(shop, self.source, eps=self.eps, count=self.batch, scale=self.regime)
        assert self.dim is not None
        return REGIMES[self.regime](self.batch, self.dim, torch.Generator().manual_seed(self.seed))


def _finite(value: Any) -> Any:
    """JSON knows no NaN."""
    return None if isinstance(value, float) and value != value else value
