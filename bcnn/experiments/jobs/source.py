"""Stored descriptors that jobs take: pooled by a network, frozen or fine-tuned, from all images of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ...data.contract import TRAIN
from ...descriptors.extract import extract
from ...descriptors.fitting import fit_or_read
from ...descriptors.folder import Descriptors
from ...models.bcnn import BCNN, with_head
from ...pooling.bilinear import BilinearPool
from ...pooling.triangle import full_matrix
from ...progress import Progress
from ..plain import later, short_digest
from ..records import Subject
from ..workshop import WHOLE, Workshop, slug_of, stored_head
from .tuned import Tuned


@dataclass(frozen=True)
class Source:
    """What stored descriptors depend on, besides the pooling."""

    dataset: str
    images: str
    network: str
    weights: str
    parameters: str
    size: int
    tuned: Tuned | None = None  # the fine-tuned network whose weights it has
    front: str | None = later(None)  # a part before the network
    flips: bool = later(True)  # whether the mirror image is a second view

    @property
    def slug(self) -> str:
        """The name of the folder of its descriptors."""
        name = slug_of(self.dataset, self.images, self.network, self.parameters, self.size)
        name += "" if self.front is None else f"_{short_digest(self.front)}"
        name += "" if self.flips else "_noflips"
        return name if self.tuned is None else f"{name}_{self.tuned.scheme}_{self.tuned.digest}"

    @property
    def num_views(self) -> int:
        """How many rows an image has."""
        return 2 if self.flips else 1

    def name_with(self, *words: str) -> str:
        """Dataset, network and size, then the words, the first of them before what the network was tuned for."""
        tuned = [f"after {self.tuned.scheme}, seed {self.tuned.seed}"] if self.tuned else []
        front, flips = [self.front] if self.front else [], [] if self.flips else ["no flips"]
        place = [self.dataset, *front, self.network, f"{self.size} px", *flips]
        return ", ".join([*place, *words[:1], *tuned, *words[1:]])

    def folder(self, shop: Workshop, pooling: str) -> Path:
        """Where the descriptors of a pooling, or of a whole head, are."""
        name = f"head-{short_digest(pooling)}" if pooling.startswith(WHOLE) else pooling
        return shop.out / "descriptors" / self.slug / name

    def stored(self, shop: Workshop, pooling: str) -> Descriptors:
        """The stored descriptors, once all images are described."""
        return Descriptors(self.folder(shop, pooling))

    def extract(self, shop: Workshop, poolings: Sequence[str], progress: Progress | None = None) -> None:
        """Store descriptors of every image, all poolings and heads in one pass; what is there is not done again."""
        models = {self.folder(shop, pooling): self.model(shop, pooling) for pooling in poolings}
        dataset, stage = shop.dataset(self.dataset), f"describing {self.slug}, images"
        how = replace(shop.options, flips=self.flips)
        done = extract(dataset, models, how, progress=progress or shop.progress, stage=stage)
        shop.add_broken(self.dataset, done.broken)

    def model(self, shop: Workshop, pooling: str) -> BCNN:
        """The network under a pooling, or under a whole head; parts that need data are fitted on training images."""
        weights = None if self.tuned is None else self.tuned.best(shop)
        base = shop.network(self.dataset, self.network, self.size, tuned=weights, front=self.front)
        samples, folder = shop.dataset(self.dataset).of(TRAIN), self.folder(shop, pooling)
        return fit_or_read(with_head(base, stored_head(pooling)), samples, folder, shop.options, progress=shop.progress)

    def num_missing(self, shop: Workshop, poolings: Sequence[str]) -> int:
        """How many images still have to be described."""
        total = shop.num_images(self.dataset)[1]
        try:
            stored = [self.stored(shop, pooling) for pooling in poolings]
        except (OSError, ValueError):
            return total
        return min(total, max(len(descriptors.missing) * descriptors.config.chunk for descriptors in stored))

    def matrices(self, shop: Workshop, *, eps: float, count: int, scale: str = "trace") -> Tensor:
        """A of at most `count` training images, evenly spread over the list, in float32, shape (count, d, d).

        The ridge is that of `bcnn.Head`, in units of `scale`.
        """
        rows = self.stored(shop, "bilinear").matrix(TRAIN)
        count = min(count, len(rows.rows))
        wanted = {rows.num_views * (i * len(rows.rows) // count) for i in range(count)}
        every = enumerate(row for part in rows.parts() for row in part)
        A = full_matrix(torch.stack([row for i, row in every if i in wanted]))
        return BilinearPool(eps, scale).complete(A)


def source_of(subject: Subject) -> Source:
    """The descriptors of the frozen network."""
    s = subject
    return Source(s.dataset, s.images, s.network, s.weights, s.parameters, s.size, flips=s.flips)
