"""Where experiments are carried out: datasets, features that are described once for all, fine-tuned runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.contract import TEST, TRAIN, Dataset
from ..data.spec import load_dataset
from ..errors import unknown_name
from ..features.extract import ExtractOptions, extract
from ..features.folder import Features, digest_of, digest_of_content, listed
from ..models.bcnn import BCNN, with_head
from ..models.weights.cache import digest_of as digest_of_tensors
from ..pooling import POOLINGS
from ..pooling.head import HeadConfig, make_config
from ..runs import config as configs
from ..runs.config import RunConfig
from ..runs.networks import networks
from ..runs.train import check_trainable
from .contract import to_plain
from .jobs.frozen import Source
from .jobs.tuned import METRICS, Tuned

Tick = Callable[..., None]  # stage, done, in all, note


class Workshop:
    """What jobs need.

    Args:
        data: specs of the datasets, by name.
        out: the folder for features and fine-tuned runs.
        options: how to describe images.
        weights: of the networks, as `bcnn.build_model` takes them.
        reuse: further folders whose finished fine-tuned runs are taken.
        tick: hears of progress.
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
        tick: Tick = lambda *heard: None,
        report: Any = None,
    ):
        self.data, self.out, self.options = dict(data), out, options or ExtractOptions()
        self.weights, self.reuse, self.tick, self.report = weights, tuple(reuse), tick, report
        self.broken: dict[str, dict[str, str]] = {}  # images that could not be read, and why, by dataset
        self._datasets: dict[str, Dataset] = {}
        self._images: dict[str, str] = {}
        self._models: dict[tuple[Any, ...], BCNN] = {}

    def dataset(self, name: str) -> Dataset:
        """Loaded once."""
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
            dataset = self.dataset(name)
            samples = listed(dataset)
            listing = digest_of(samples, dataset.classes)
            self._images[name] = digest_of_content(listing, (sample.fingerprint() for sample in samples))
        return self._images[name]

    def num_images(self, name: str) -> tuple[int, int]:
        """For training, and in all."""
        dataset = self.dataset(name)
        return len(dataset.of(TRAIN)), len(dataset.samples)

    # --- features -----------------------------------------------------------------------------------------------------

    def network(self, dataset: str, network: str, size: int, *, tuned: Tuned | None = None) -> BCNN:
        """The network, the latest one kept; its head is of no importance."""
        key = (dataset, network, size, tuned)
        if key not in self._models:
            config = RunConfig(
                spec=self.data[dataset], preset=("bcnn",), backbone=network, size=size,
                weights=self.weights if tuned is None else str(tuned.best(self)),
            )  # fmt: skip
            self._models.clear()
            self._models[key] = networks(config, self.dataset(dataset), report=self.report)["bcnn"]
        return self._models[key]

    def parameters(self, dataset: str, network: str, size: int) -> str:
        """A digest of the weights: another file of the same name is another network."""
        return digest_of_tensors(self.network(dataset, network, size).backbone.state_dict())[:16]

    def folder(self, source: Source, pooling: str) -> Path:
        """Of the features."""
        return self.out / "features" / source.slug / pooling

    def describe(
        self, source: Source, poolings: Sequence[str], tick: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Store pooled features of every image, all poolings in one pass; what is there is not done again."""
        model = self.network(source.dataset, source.network, source.size, tuned=source.tuned)
        models = {self.folder(source, pooling): with_head(model, plain_head(pooling)) for pooling in poolings}

        def hear(done: int, total: int) -> None:
            self.tick(f"describing {source.slug}, images", done, total)
            tick(done, total)

        done = extract(self.dataset(source.dataset), models, self.options, tick=hear)
        self.add_broken(source.dataset, done.broken)

    def add_broken(self, dataset: str, broken: Mapping[str, str]) -> None:
        """Keep in mind which images could not be read."""
        self.broken[dataset] = {**self.broken.get(dataset, {}), **broken}

    def stored(self, source: Source, pooling: str) -> Features:
        """The features, once they are described."""
        return Features(self.folder(source, pooling))

    def num_missing(self, source: Source, poolings: Sequence[str]) -> int:
        """Images that are still to be described."""
        total = self.num_images(source.dataset)[1]
        missing = 0
        for pooling in poolings:
            try:
                features = self.stored(source, pooling)
            except (OSError, ValueError):
                return total
            missing = max(missing, min(total, len(features.missing) * features.config.chunk))
        return missing

    # --- fine-tuned runs ----------------------------------------------------------------------------------------------

    def run_folder(self, job: Tuned) -> Path:
        """Where a new run goes."""
        digest = hashlib.sha256(json.dumps(to_plain(job), sort_keys=True).encode()).hexdigest()[:8]
        return self.out / "finetune" / f"{job.scheme}_{job.network.replace('/', '-')}_{job.seed}_{digest}"

    def before_folder(self, job: Tuned) -> Path:
        """Descriptors before fine-tuning, the same for all seeds unless weights are random."""
        slug = Source(job.dataset, job.images, job.network, job.weights, job.parameters, job.size).slug
        seed = f"_{job.seed}" if self.weights is None else ""
        head = {name: value for name, value in json.loads(job.options).items() if name not in ("finetune", "rescale")}
        digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()[:8]
        return self.out / "features" / f"{slug}_before_{job.scheme}-{digest}{seed}"

    def finished_run(self, job: Tuned) -> Path | None:
        """A finished run of this configuration on these images, if there is one."""
        if (self.run_folder(job) / METRICS).exists():
            return self.run_folder(job)
        wanted, dataset = job.config(self).result_part(), self.dataset(job.dataset)
        listing = digest_of(listed(dataset), dataset.classes)
        for root in self.reuse:
            for path in (
                root / METRICS,
                *sorted(root.glob(f"*/{METRICS}")),
                *sorted(root.glob(f"finetune/*/{METRICS}")),
            ):
                try:
                    stored = configs.from_plain(configs.read(path.parent / "config.yaml")).result_part()
                    metrics = json.loads(path.read_text())
                    same = metrics["listing"] == listing and metrics.get("images", job.images) == job.images
                    if stored == wanted and same:
                        return path.parent
                except (OSError, ValueError, KeyError, TypeError):
                    continue
        return None


def plain_head(pooling: str) -> HeadConfig:
    """The pooling alone, as it is stored: what all heads with it can be made from."""
    part = POOLINGS.make(pooling)
    return make_config(HeadConfig(part.stored_as or pooling, ()))  # type: ignore[arg-type]
