"""Accuracy of a frozen network under one head: SVMs on descriptors made from stored pooled matrices.

Paper: Sec. 3.2 and 3.3. The network sees each image once for all heads: what is stored is A of Eq. (1) without its
ridge, and a head adds the ridge and the normalizations.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy
import torch
from torch import Tensor

from ...classify.evaluate import fit_and_test
from ...data.contract import TEST, TRAIN
from ...features.folder import FeatureRows
from ...parts.shapes import Maps, Spd
from ...pooling import POOLINGS
from ...pooling.head import PAPERS_EPS, Head, HeadConfig, make_config, options_of, with_options
from ...pooling.triangle import dimension_of, full_matrix
from ..contract import Subject, later, to_plain
from .tuned import Tuned, papers_own

if TYPE_CHECKING:
    from ..gauge import Gauge
    from ..workshop import Workshop


SCRATCH = ".descriptors-"


@dataclass(frozen=True)
class Source:
    """What stored features depend on, besides the pooling."""

    dataset: str
    images: str
    network: str
    weights: str
    parameters: str
    size: int
    tuned: Tuned | None = None  # the fine-tuned network whose weights it has

    @property
    def slug(self) -> str:
        """A folder's name."""
        network = f"{self.network.replace('/', '-')}-{self.parameters[:8]}"
        name = f"{self.dataset}-{self.images[:8]}_{network}_{self.size}"
        return name if self.tuned is None else f"{name}_{self.tuned.scheme}_{_digest(self.tuned)}"


def source_of(subject: Subject) -> Source:
    """Of the frozen network."""
    s = subject
    return Source(s.dataset, s.images, s.network, s.weights, s.parameters, s.size)


def _digest(tuned: Tuned) -> str:
    return hashlib.sha256(json.dumps(to_plain(tuned), sort_keys=True).encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Frozen:
    """One-vs-rest SVMs, C = 1, on images and flips, predictions averaged over both."""

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
        """The head."""
        s = self.source
        origin = "" if s.tuned is None else f" tuned as {s.tuned.scheme}, seed {s.tuned.seed}"
        head = " > ".join((self.pooling, *self.normalize))
        return f"{s.dataset}, {s.network} at {s.size} px{origin}: {head}"

    @property
    def sources(self) -> tuple[tuple[Source, str], ...]:
        """Its pooled features."""
        return ((self.source, self.pooling),)

    @property
    def before(self) -> tuple[Any, ...]:
        """The fine-tuning that its weights come from."""
        return () if self.source.tuned is None else (self.source.tuned,)

    @property
    def head(self) -> HeadConfig:
        """As `bcnn.Head` takes it."""
        config = make_config(HeadConfig(self.pooling, self.normalize))
        ridge = {"eps": self.eps, "eps_scale": self.eps_scale}
        return with_options(config, ridge) if "eps" in options_of(POOLINGS, self.pooling) else config

    def seconds(self, gauge: Gauge) -> float:
        """Normalizing all views, one Gram matrix, the SVMs, the scores."""
        num_train, num_all = gauge.num_images(self.source.dataset)
        describe = 2 * num_all * gauge.normalize_s(self.source, self.head)
        return describe + gauge.classify_s(self.source, self.head, num_train, num_all)

    def run(self, shop: Workshop) -> dict[str, Any]:
        """Accuracy on the test images, and what was predicted."""
        stored, num_classes = shop.stored(self.source, self.pooling), len(shop.dataset(self.source.dataset).classes)
        head, begin = Head(self.head).eval(), time.perf_counter()
        own = stored.matrix(TRAIN)
        done = fit_and_test(
            own,
            stored.matrix(TEST),
            num_classes,
            opened=lambda rows: descriptors(head, rows, shop, self.name),
            kind="svm",
            C=self.C,
            calibrate=False,
            rescale=self.rescale,
        )
        fitted, tested, found = done.classifier, done.tested, done.tested.evaluation()
        if found is None:
            raise ValueError(f"reproduce: expected test images of {self.source.dataset} that can be read, got none.")
        return {
            "accuracy": found.accuracy,
            "top5_accuracy": found.top5_accuracy,
            "mean_class_accuracy": found.mean_class_accuracy,
            "num_test": found.num_images,
            "num_train": len(own.rows),
            "num_broken": len(stored.broken),
            "truth": tested.labels.tolist(),
            "predicted": tested.scores.argmax(1).tolist(),
            "num_features": int(fitted.weight.shape[1]),
            "converged": fitted.converged,
            "time_s": {
                "fit": sum(fitted.time_s.values()),
                "all": time.perf_counter() - begin,
                "describe": stored.time_s,
            },
        }


def frozen(subject: Subject, normalize: tuple[str, ...], eps: float, pooling: str = "bilinear") -> Frozen:
    """The job of a head with the frozen network, as the subject wants it: which ridge, which scale of the SVMs.

    Args:
        subject: of the experiment.
        normalize: the head's normalizations.
        eps: our ridge, relative to the trace; 0: none.
        pooling: the head's.
    """
    if subject.ridge == "paper":
        eps = PAPERS_EPS if eps else 0.0
        return Frozen(
            source_of(subject), papers_own(normalize), eps, pooling, eps_scale="largest", rescale=subject.rescale
        )
    return Frozen(source_of(subject), normalize, eps, pooling, rescale=subject.rescale)


@contextmanager
def descriptors(head: Head, rows: FeatureRows, shop: Workshop, name: str) -> Iterator[numpy.ndarray]:
    """Descriptors of stored features, one row a view, in a file that is removed afterwards."""
    width = head.length(num_channels(head, rows.shape[1]))
    shape = (rows.shape[0], width)
    needed = 4 * shape[0] * shape[1]
    free = shutil.disk_usage(shop.out).free
    if needed > free:
        raise OSError(
            f"reproduce: expected {needed / 1e9:.1f} GB free in {shop.out} for descriptors, got {free / 1e9:.1f} GB; "
            "make room, or choose another --out."
        )
    with tempfile.TemporaryDirectory(dir=shop.out, prefix=SCRATCH) as folder:
        if not shape[0]:
            yield numpy.empty(shape, numpy.float32)
            return
        place = Path(folder) / "descriptors"
        file = numpy.memmap(place, numpy.float32, "w+", shape=shape)
        at = 0
        for part in rows.parts():
            file[at : at + len(part)] = describe_stored(head, part.to(shop.options.device)).cpu().numpy()
            at += len(part)
            shop.tick(f"{name}, images", at // rows.num_views, shape[0] // rows.num_views)
        file.flush()
        del file
        yield numpy.memmap(place, numpy.float32, "r", shape=shape)


def num_channels(head: Head, width: int) -> int:
    """Of the features whose pooled form has so many numbers."""
    return dimension_of(width) if _is_matrix(head) else width


def _is_matrix(head: Head) -> bool:
    return isinstance(head.pooling.shape(Maps(1)), Spd)


@torch.inference_mode()
def describe_stored(head: Head, stored: Tensor) -> Tensor:
    """What the head would have made of the features themselves, shape (rows, d).

    Args:
        head: its pooling is what the features were stored with.
        stored: the triangles of A without a ridge, or vectors, shape (rows, width).
    """
    pooled = full_matrix(stored) if _is_matrix(head) else stored
    return head.normalize_matrix(head.pooling.complete(pooled))
