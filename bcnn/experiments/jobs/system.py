"""Accuracy, width and time of a frozen network with any parts: the systems that Table 4 compares.

Paper: Sec. 3.6. Descriptors are stored as the head gives them, one pass through the network for all heads.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from ...bench.memory import peak_bytes
from ...bench.timing import wait
from ...classify.evaluate import fit_rows
from ...data.contract import TRAIN
from ...models.bcnn import BCNN, with_scorer
from ...models.engines import using
from ...pooling.head import HeadConfig, make_config
from ...runs.finish import test
from ..gauge import Gauge
from ..plain import later
from ..records import Outcome, Tested
from ..workshop import Workshop, stored_head, whole
from .source import Source

TIMED_IMAGES = 4  # in a batch
TIMED_ROUNDS = 5  # of which the fastest counts: others may be at work on the machine


@dataclass(frozen=True)
class SystemResult(Tested):
    """How well a system does, and what it costs."""

    num_parameters: int  # after the networks: head and scorer
    network_ms: float  # per view of an image, front and networks
    head_ms: float  # per view, pooling and normalizations
    time_s: dict[str, float]  # "fit", the SVMs; "all", with scores; "describe", the images, once for all heads
    head_mb: float | None = later(None)  # the most that tensors hold at once for a view, pooling and normalizations
    image_mb: float | None = later(None)  # likewise, front and networks, too


@dataclass(frozen=True)
class System:
    """One-vs-rest SVMs on the descriptors of a whole head, image and flip; or a scorer that takes them over."""

    kind: ClassVar[str] = "system"
    source: Source
    head: str  # of `workshop.whole`
    scorer: str = "linear"
    C: float = 1.0
    rescale: str = later("none")

    @property
    def name(self) -> str:
        scorer = "" if self.scorer == "linear" else f", {self.scorer}"
        return self.source.name_with(self.kind, self.head) + scorer

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        return ((self.source, self.head),)

    @property
    def config(self) -> HeadConfig:
        """The head as `bcnn.Head` takes it."""
        return stored_head(self.head)

    def seconds(self, gauge: Gauge) -> float:
        """An estimate: one Gram matrix, the SVMs and the scores."""
        s = self.source
        return gauge.classify_s(s.dataset, gauge.view(s.network, s.size), self.config, num_views=s.num_views)

    def run(self, shop: Workshop) -> Outcome[SystemResult]:
        """Fit the SVMs on the training images, hand them to the scorer, and test it."""
        stored, begin = self.source.stored(shop, self.head), time.perf_counter()
        num_classes = len(shop.dataset(self.source.dataset).classes)
        own = stored.matrix(TRAIN)
        fitted = fit_rows(own, num_classes, kind="svm", C=self.C, calibrate=False, rescale=self.rescale)
        model = self.source.model(shop, self.head)
        model.reset_scorer(num_classes, self.scorer)
        model = with_scorer(model, num_classes, fitted.weight, fitted.bias, own.parts())
        tested = test(model, stored)
        found = tested.evaluation()
        if found is None:
            raise ValueError(f"reproduce: expected test images of {self.source.dataset} that can be read, got none.")
        spent = {"fit": sum(fitted.time_s.values()), "all": time.perf_counter() - begin, "describe": stored.time_s}
        network_ms, head_ms = times(model, self.source.size, shop)
        result = SystemResult(
            accuracy=found.accuracy, top5_accuracy=found.top5_accuracy, mean_class_accuracy=found.mean_class_accuracy,
            num_test=found.num_images, num_train=len(own.rows), num_broken=len(stored.broken),
            truth=tuple(tested.labels.tolist()), predicted=tuple(tested.scores.argmax(1).tolist()),
            descriptor_length=model.descriptor_length, num_parameters=_num_parameters(model), network_ms=network_ms,
            head_ms=head_ms, time_s=spent, **memory(model, self.source.size, shop),
        )  # fmt: skip
        return Outcome(result)


def system(
    source: Source, preset: str | HeadConfig, *, scorer: str = "linear", rescale: str = "none", **options: Any
) -> System:
    """The job of a preset with some options changed, as `bcnn.Head` takes them."""
    return System(source, whole(make_config(preset, **options)), scorer, rescale=rescale)


@torch.inference_mode()
def times(model: BCNN, size: int, shop: Workshop) -> tuple[float, float]:
    """Milliseconds per view: of front and networks, and of the head; the fastest round, made-up images."""
    options = shop.options
    images = torch.rand(TIMED_IMAGES, 3, size, size).to(options.device, memory_format=torch.channels_last)
    model.to(options.device)
    found: list[tuple[float, float]] = []
    with using(options.engine):
        for _ in range(TIMED_ROUNDS + 1):  # the first warms up
            wait(options.device)
            begin = time.perf_counter()
            maps = model.maps(images)
            wait(options.device)
            between = time.perf_counter()
            model.describe_maps(maps)
            wait(options.device)
            found.append((between - begin, time.perf_counter() - between))
    network, head = (1000 * min(column) / TIMED_IMAGES for column in zip(*found[1:], strict=True))
    return network, head


@torch.inference_mode()
def memory(model: BCNN, size: int, shop: Workshop) -> dict[str, float]:
    """Megabytes that tensors hold at most for a view besides weights, of the head ("head_mb") and in all ("image_mb").

    Call it after `times`, when what is kept from view to view is there.
    """
    image = torch.rand(1, 3, size, size).to(shop.options.device, memory_format=torch.channels_last)
    with using(shop.options.engine):
        maps = model.maps(image)
        model.describe_maps(maps)
        head = peak_bytes(lambda: model.describe_maps(maps))
        return {"head_mb": head / 1e6, "image_mb": peak_bytes(lambda: model.describe_maps(model.maps(image))) / 1e6}


def _num_parameters(model: BCNN) -> int:
    parts = (model.head, model.scorer)
    return sum(own.numel() for part in parts if part is not None for own in part.parameters())
