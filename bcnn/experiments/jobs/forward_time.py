"""Time of the matrix square root on real pooled matrices, all methods in the same rounds.

Paper: Table 3, last line, there a matrix at a time on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from ...bench.timing import time_rounds
from ...pooling.normalize import NORMALIZATIONS
from .frozen import Source
from .real import real_matrices

if TYPE_CHECKING:
    from ..gauge import Gauge
    from ..workshop import Workshop

ROUNDS = 9


@dataclass(frozen=True)
class ForwardTime:
    """Milliseconds a matrix, forward only."""

    kind: ClassVar[str] = "forward_time"
    source: Source
    methods: tuple[str, ...]  # texts of normalizations; the last is what ratios refer to
    eps: float
    device: str
    threads: int
    batch: int = 8

    @property
    def name(self) -> str:
        """Whose matrices."""
        s = self.source
        return f"{s.dataset}, {s.network} at {s.size} px: time of the square root"

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        """Pooled matrices."""
        return ((self.source, "bilinear"),)

    @property
    def before(self) -> tuple[Any, ...]:
        """Nothing."""
        return ()

    def seconds(self, gauge: Gauge) -> float:
        """About three decompositions a method."""
        return 3 * len(self.methods) * (ROUNDS + 1) * self.batch * gauge.matrix_s(gauge.dim(self.source))

    def run(self, shop: Workshop) -> dict[str, Any]:
        """Medians over the rounds."""
        device = shop.options.device
        A = real_matrices(shop, self.source, eps=self.eps, count=self.batch).to(device)
        modules = [NORMALIZATIONS.make(text).eval() for text in self.methods]
        clocks = time_rounds([partial(_apply, module, A) for module in modules], rounds=ROUNDS, device=device)
        return {
            "dim": A.shape[-1],
            "batch": len(A),
            "device": device,
            "time_ms": [clock.median_ms / len(A) for clock in clocks],
            "spread": [clock.spread for clock in clocks],
            "ratio": [clock.ratio_to(clocks[-1]) for clock in clocks],
        }


@torch.inference_mode()
def _apply(module: nn.Module, A: Tensor) -> Tensor:
    result: Tensor = module(A)
    return result
