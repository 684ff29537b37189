"""Time of the matrix square root on real pooled matrices, all methods in the same rounds.

Paper: Table 3, last line, there one matrix at a time on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch

from ...bench.timing import time_rounds
from ...pooling.normalize import NORMALIZATIONS
from ..gauge import Gauge
from ..records import Outcome
from ..workshop import Workshop
from .source import Source

ROUNDS = 9


@dataclass(frozen=True)
class ForwardTimeResult:
    """Medians over the rounds, one entry per method."""

    dim: int
    batch: int
    device: str
    time_ms: tuple[float, ...]  # per matrix
    spread: tuple[float, ...]  # half the range of the rounds, relative
    ratio: tuple[float, ...]  # to the last method


@dataclass(frozen=True)
class ForwardTime:
    """Milliseconds per matrix, forward only."""

    kind: ClassVar[str] = "forward_time"
    source: Source
    methods: tuple[str, ...]  # texts of normalizations; the last is what ratios refer to
    eps: float
    device: str
    threads: int
    batch: int = 8

    @property
    def name(self) -> str:
        return self.source.name_with(self.kind)

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        return ((self.source, "bilinear"),)

    def seconds(self, gauge: Gauge) -> float:
        """An estimate: about three decompositions per method."""
        view = gauge.view(self.source.network, self.source.size)
        return 3 * len(self.methods) * (ROUNDS + 1) * self.batch * gauge.matrix_s(view.channels)

    @torch.inference_mode()
    def run(self, shop: Workshop) -> Outcome[ForwardTimeResult]:
        """Time all methods in turn, round by round."""
        device = shop.options.device
        A = self.source.matrices(shop, eps=self.eps, count=self.batch).to(device)
        modules = [NORMALIZATIONS.make(text).eval() for text in self.methods]
        clocks = time_rounds([partial(module, A) for module in modules], rounds=ROUNDS, device=device)
        result = ForwardTimeResult(
            dim=A.shape[-1], batch=len(A), device=device, time_ms=tuple(clock.median_ms / len(A) for clock in clocks),
            spread=tuple(clock.spread for clock in clocks), ratio=tuple(clock.ratio_to(clocks[-1]) for clock in clocks),
        )  # fmt: skip
        return Outcome(result)
