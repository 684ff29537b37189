"""Accuracy of a frozen network under one head: SVMs on descriptors made from stored pooled matrices.

Paper: Sec. 3.2 and 3.3.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy
from torch import Tensor

from ...classify.evaluate import fit_and_test
from ...data.contract import TEST, TRAIN
from ...descriptors.folder import DescriptorRows
from ...files import amount
from ...pooling import POOLINGS
from ...pooling.head import Head, HeadConfig, make_config, options_of, with_options
from .. import spectra
from ..gauge import Gauge
from ..plain import later
from ..records import Outcome, Subject, Tested
from ..workshop import Workshop, describe_stored, num_channels
from .source import Source, source_of
from .tuned import RIDGE_OF, papers_own

SCRATCH = ".descriptors-"


@dataclass(frozen=True)
class FrozenResult(Tested):
    """How well a head does, and whether its SVMs converged."""

    converged: bool
    time_s: dict[str, float]  # "fit"; "all", with normalizing and scores; "describe", the images, once for all heads


@dataclass(frozen=True)
class Frozen:
    """One-vs-rest SVMs, C = 1, on images and flips, unless the source has none; predictions averaged over both."""

    kind: ClassVar[str] = "frozen"
    source: Source
    normalize: tuple[str, ...]
    eps: float
    pooling: str = "bilinear"
    C: float = 1.0
    eps_scale: str = later("trace")
    rescale: str = later("none")

    @property
    def name(self) -> str:
        return self.source.name_with(self.kind, " > ".join((self.pooling, *self.normalize)))

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        return ((self.source, self.pooling),)

    @property
    def head(self) -> HeadConfig:
        """The head as `bcnn.Head` takes it."""
        config = make_config(HeadConfig(self.pooling, self.normalize))
        ridge = {"eps": self.eps, "eps_scale": self.eps_scale}
        return with_options(config, ridge) if "eps" in options_of(POOLINGS, self.pooling) else config

    def seconds(self, gauge: Gauge) -> float:
        """Normalizing all views, one Gram matrix, the SVMs, the scores."""
        s, head = self.source, self.head
        view, num_all = gauge.view(s.network, s.size), gauge.shop.num_images(s.dataset)[1]
        return s.num_views * num_all * gauge.normalize_s(view, head) + gauge.classify_s(
            s.dataset, view, head, num_views=s.num_views
        )

    def run(self, shop: Workshop) -> Outcome[FrozenResult]:
        """Fit the SVMs on the training images and test them."""
        stored, num_classes = self.source.stored(shop, self.pooling), len(shop.dataset(self.source.dataset).classes)
        head, begin = Head(self.head).eval(), time.perf_counter()
        own = stored.matrix(TRAIN)
        done = fit_and_test(
            own, stored.matrix(TEST), num_classes,
            opened=lambda rows: descriptors(head, rows, shop, self.name, self.source.folder(shop, "spectra")),
            kind="svm", C=self.C, calibrate=False, rescale=self.rescale,
        )  # fmt: skip
        fitted, tested, found = done.classifier, done.tested, done.tested.evaluation()
        if found is None:
            raise ValueError(f"reproduce: expected test images of {self.source.dataset} that can be read, got none.")
        spent = {"fit": sum(fitted.time_s.values()), "all": time.perf_counter() - begin, "describe": stored.time_s}
        result = FrozenResult(
            accuracy=found.accuracy, top5_accuracy=found.top5_accuracy, mean_class_accuracy=found.mean_class_accuracy,
            num_test=found.num_images, num_train=len(own.rows), num_broken=len(stored.broken),
            truth=tuple(tested.labels.tolist()), predicted=tuple(tested.scores.argmax(1).tolist()),
            descriptor_length=int(fitted.weight.shape[1]), converged=fitted.converged, time_s=spent,
        )  # fmt: skip
        return Outcome(result)


def frozen(subject: Subject, normalize: tuple[str, ...], eps: float, pooling: str = "bilinear") -> Frozen:
    """The job of a head with the frozen network, as the subject wants it: which ridge, which scale of the SVMs.

    Args:
        subject: of the experiment.
        normalize: the head's normalizations.
        eps: our ridge, relative to the trace; 0: none.
        pooling: the head's.
    """
    ours = Frozen(source_of(subject), normalize, eps, pooling, rescale=subject.rescale)
    if subject.ridge == "ours":
        return ours
    theirs = RIDGE_OF[subject.ridge]
    return replace(
        ours, normalize=papers_own(normalize), eps=theirs["eps"] if eps else 0.0, eps_scale=theirs["eps_scale"]
    )


@contextmanager
def descriptors(head: Head, rows: DescriptorRows, shop: Workshop, name: str, folder: Path) -> Iterator[numpy.ndarray]:
    """Descriptors from stored poolings, one row per view, in a file that is removed afterwards.

    Decompositions of the stored matrices, if the head can use them, are kept in `folder`.
    """
    channels = num_channels(head, rows.shape[1])
    shape = (rows.shape[0], head.length(channels))
    needed = 4 * shape[0] * shape[1]
    free = shutil.disk_usage(shop.out).free
    if needed > free:
        raise OSError(
            f"reproduce: expected {amount(needed)} free in {shop.out} for descriptors, got {amount(free)}; "
            "make room, or choose another --out."
        )
    with tempfile.TemporaryDirectory(dir=shop.out, prefix=SCRATCH) as scratch:
        if not shape[0]:
            yield numpy.empty(shape, numpy.float32)
            return
        place = Path(scratch) / "descriptors"
        file = numpy.memmap(place, numpy.float32, "w+", shape=shape)
        at = 0
        for part in _described(head, rows, shop, name, folder, channels):
            file[at : at + len(part)] = part.cpu().numpy()
            at += len(part)
            shop.progress(f"{name}, images", at // rows.num_views, shape[0] // rows.num_views)
        file.flush()
        del file
        yield numpy.memmap(place, numpy.float32, "r", shape=shape)


def _described(
    head: Head, rows: DescriptorRows, shop: Workshop, name: str, folder: Path, channels: int
) -> Iterator[Tensor]:
    """Descriptors of the rows, those of a file at a time, the shorter way where there is one."""
    if shop.options.device == "cpu" and spectra.serve(head) and spectra.fit_on_disk(folder, rows, channels):
        stage = f"{name}, decompositions for this and other heads, files"
        for matrices in spectra.spectra(folder, rows, shop.progress, stage):
            yield spectra.describe(head, matrices)
    else:
        for part in rows.parts():
            yield describe_stored(head, part.to(shop.options.device))
