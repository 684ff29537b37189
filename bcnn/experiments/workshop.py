"""What jobs share: datasets, networks, where results go; and descriptors as they are stored.

The network sees each image once for all heads: what is stored is A of Eq. (1) without its ridge, and a head adds the
ridge and the normalizations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ..data.contract import TEST, TRAIN, Dataset
from ..data.spec import load_dataset
from ..descriptors.extract import ExtractOptions
from ..descriptors.folder import digest_of, digest_of_content, listed
from ..errors import unknown_name
from ..models.bcnn import BCNN
from ..models.weights.cache import digest_of as digest_of_tensors
from ..models.weights.fetch import Report
from ..parts.shapes import Maps, Spd
from ..parts.text import split
from ..pooling import POOLINGS
from ..pooling.head import Head, HeadConfig, make_config
from ..pooling.triangle import dimension_of, full_matrix
from ..progress import Progress, silent
from ..runs.config import RunConfig
from ..runs.networks import networks
from ..runs.train import check_trainable

WHOLE, JOINT = "head: ", " > "  # of the text of a whole head


class Workshop:
    """What jobs need.

    Args:
        data: specs of the datasets, by name.
        out: the folder for descriptors and fine-tuned runs.
        options: how to describe images.
        weights: of the networks, as `bcnn.build_model` takes them.
        reuse: further folders whose finished fine-tuned runs are taken.
        progress: hears how far the work is.
        report: hears of downloads.
    """

    def __init__(
        self,
        data: Mapping[str, str],
        out: Path,
        options: ExtractOptions | None = None,
        *,
        weights: str | None = "default",
        reuse: Sequence[Path] = (),
        progress: Progress = silent,
        report: Report | None = None,
    ):
        self.data, self.out, self.options = dict(data), out, options or ExtractOptions()
        self.weights, self.reuse, self.progress, self.report = weights, tuple(reuse), progress, report
        self.broken: dict[str, dict[str, str]] = {}  # images that could not be read, and why, by dataset
        self._datasets: dict[str, Dataset] = {}
        self._images: dict[str, str] = {}
        self._models: dict[tuple[str, str, int, Path | None, str | None], BCNN] = {}

    def dataset(self, name: str) -> Dataset:
        """Load a dataset, once."""
        if name not in self.data:
            raise unknown_name("reproduce", "dataset", name, self.data)
        if name not in self._datasets:
            dataset = load_dataset(self.data[name])
            check_trainable(dataset, self.data[name])
            if not dataset.of(TEST):
                raise ValueError(f"reproduce: expected test images in {self.data[name]}, got none.")
            self._datasets[name] = dataset
        return self._datasets[name]

    def images(self, name: str) -> str:
        """A digest of a dataset's images: names, classes, splits and the content of the files."""
        if name not in self._images:
            samples = listed(self.dataset(name))
            self._images[name] = digest_of_content(self.listing(name), (sample.fingerprint() for sample in samples))
        return self._images[name]

    def listing(self, name: str) -> str:
        """A digest of the names, classes and splits of a dataset's images."""
        dataset = self.dataset(name)
        return digest_of(listed(dataset), dataset.classes)

    def num_images(self, name: str) -> tuple[int, int]:
        """The number of images for training, and in all."""
        dataset = self.dataset(name)
        return len(dataset.of(TRAIN)), len(dataset.samples)

    def network(
        self, dataset: str, network: str, size: int, *, tuned: Path | None = None, front: str | None = None
    ) -> BCNN:
        """The network with the usual weights, or with those of a fine-tuned one; the latest is kept.

        Two names, as in "vgg16,alexnet", are two networks side by side.
        """
        key = (dataset, network, size, tuned, front)
        if key not in self._models:
            config = RunConfig(
                spec=self.data[dataset], preset=("bcnn",), backbone=network, size=size, front=front,
                weights=self.weights if tuned is None else str(tuned),
                pooling="asymmetric" if len(split(network)) == 2 else None,
            )  # fmt: skip
            self._models.clear()
            self._models[key] = networks(config, self.dataset(dataset), report=self.report)["bcnn"]
        return self._models[key]

    def parameters(self, dataset: str, network: str, size: int) -> str:
        """A digest of the weights: another file of the same name is another network."""
        return digest_of_tensors(self.network(dataset, network, size).backbone.state_dict())[:16]

    def add_broken(self, dataset: str, broken: Mapping[str, str]) -> None:
        """Remember which images could not be read."""
        self.broken[dataset] = {**self.broken.get(dataset, {}), **broken}


def slug_of(dataset: str, images: str, network: str, parameters: str, size: int) -> str:
    """A name for a folder, or the beginning of one."""
    return f"{dataset}-{images[:8]}_{network.replace('/', '-')}-{parameters[:8]}_{size}"


def plain_head(pooling: str) -> HeadConfig:
    """The pooling alone, as it is stored: descriptors of all heads with this pooling can be made from it."""
    part = POOLINGS.make(pooling)
    return make_config(HeadConfig(part.stored_as or pooling, ()))  # type: ignore[arg-type]


def whole(head: HeadConfig) -> str:
    """The text of a whole head, under which its descriptors are stored."""
    return WHOLE + JOINT.join((head.pooling, *head.normalize))


def stored_head(text: str) -> HeadConfig:
    """What is stored under a text: a pooling alone, for many heads, or the descriptors of a whole head."""
    if not text.startswith(WHOLE):
        return plain_head(text)
    pooling, *normalize = text.removeprefix(WHOLE).split(JOINT)
    return make_config(HeadConfig(pooling, tuple(normalize)))


def num_channels(head: Head, width: int) -> int:
    """The number of channels of features whose stored form has `width` numbers."""
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
