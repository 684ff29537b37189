"""Accuracy of boosted B-CNNs with the frozen network, by `runs.boost`.

Paper: Table 4, "BoostCNN". Without fine-tuning all rounds at one size of the images are one linear classifier.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...metrics import METRICS, read
from ...runs.config import RunConfig
from ..gauge import Gauge
from ..plain import later, short_digest, to_plain
from ..records import Outcome
from ..run_folder import answers
from ..workshop import Workshop, stored_head
from .source import Source
from .system import SystemResult, memory, times


@dataclass(frozen=True)
class Boosted:
    """One run of `bcnn train --boost`, on descriptors that are stored already."""

    kind: ClassVar[str] = "boosted"
    source: Source
    head: str  # of `workshop.whole`, of a preset
    preset: str
    rounds: int = 50
    shrinkage: float = 0.1  # the authors'
    rescale: str = later("none")

    @property
    def name(self) -> str:
        return self.source.name_with(self.kind, self.preset, f"{self.rounds} rounds")

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        return ((self.source, self.head),)

    def seconds(self, gauge: Gauge) -> float:
        """An estimate: about as long as SVMs take."""
        view = gauge.view(self.source.network, self.source.size)
        return gauge.classify_s(self.source.dataset, view, stored_head(self.head), num_views=self.source.num_views)

    def folder(self, shop: Workshop) -> Path:
        """The folder of the run."""
        return shop.out / "boosted" / short_digest({"kind": self.kind, **to_plain(self)})

    def run(self, shop: Workshop) -> Outcome[SystemResult]:
        """Boost, and read the result from the run folder."""
        from ...runs.boost import boost

        how, begin = shop.options, time.perf_counter()
        config = RunConfig(
            spec=shop.data[self.source.dataset], preset=(self.preset,), backbone=self.source.network,
            weights=shop.weights, size=self.source.size, boost=self.rounds, shrinkage=self.shrinkage,
            rescale=self.rescale, flips=self.source.flips, descriptors=str(self.source.folder(shop, self.head)),
            device=how.device, workers=how.workers, batch=how.batch, strict=how.strict, engine=how.engine,
        )  # fmt: skip
        boost(config, self.folder(shop), progress=shop.progress)
        run = read(self.folder(shop) / METRICS)
        test = run.test
        if test is None:
            raise ValueError(f"reproduce: expected test images of {self.source.dataset} that can be read, got none.")
        truth, predicted = answers(self.folder(shop), test.per_class)
        model = self.source.model(shop, self.head)
        network_ms, head_ms = times(model, self.source.size, shop)
        stored = self.source.stored(shop, self.head)
        result = SystemResult(
            accuracy=test.accuracy, top5_accuracy=test.top5_accuracy, mean_class_accuracy=test.mean_class_accuracy,
            num_test=test.num_test, num_train=run.num_train, num_broken=len(run.broken), truth=truth,
            predicted=predicted, descriptor_length=run.descriptor_length,
            num_parameters=(run.descriptor_length + 1) * run.num_classes, network_ms=network_ms, head_ms=head_ms,
            time_s={"fit": run.time_s.get("fit", 0.0), "all": time.perf_counter() - begin, "describe": stored.time_s},
            **memory(model, self.source.size, shop),
        )  # fmt: skip
        return Outcome(result)
