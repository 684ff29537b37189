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
from ..features.extract import ExtractOptions, extract, with_head
from ..features.folder import Features, digest_of, listed
from ..models.bcnn import BCNN
from ..pooling import POOLINGS
from ..pooling.head import HeadConfig
from ..runs import config as configs
from ..runs.config import RunConfig
from ..runs.train import check_trainable
from .contract import to_plain
from .jobs.frozen import Source
from .jobs.tuned import Tuned

Tick = Callable[..., None]  # stage, done, in all, note


class Workshop:
    """What jobs need.

    Args:
        data: specs of the datasets, by name.
        out: the folder for features and fine-tuned runs.
        options: how to describe images.
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
        reuse: Sequence[Path] = (),
        tick: Tick = lambda *heard: None,
        report: Any = None,
    ):
        self.data, self.out, self.options = dict(data), out, options or ExtractOptions()
        self.reuse, self.tick, self.report = tuple(reuse), tick, report
        self.broken: dict[str, dict[str, str]] = {}  # images that could not be read, and why, by dataset
        self._datasets: dict[str, Dataset] = {}
        self._models: dict[Source, BCNN] = {}

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
        """The digest of a dataset's list of images."""
        dataset = self.dataset(name)
        return digest_of(listed(dataset), dataset.classes)[:16]

    def num_images(self, name: str) -> tuple[int, int]:
        """For training, and in all."""
        dataset = self.dataset(name)
        return len(dataset.of(TRAIN)), len(dataset.samples)

    # --- features -----------------------------------------------------------------------------------------------------

    def model(self, source: Source) -> BCNN:
        """The network, built once; its head is of no importance."""
        if source not in self._models:
            weights = source.weights if source.tuned is None else str(source.tuned.best(self))
            seed = 0 if source.tuned is None else source.tuned.seed
            config = RunConfig(
                spec=self.data[source.dataset], preset=("bcnn",), backbone=source.network, weights=weights,
                size=source.size, seed=seed,
            )  # fmt: skip
            self._models.clear()  # one at a time
            self._models[source] = configs.networks(config, self.dataset(source.dataset), report=self.report)["bcnn"]
        return self._models[source]

    def folder(self, source: Source, pooling: str) -> Path:
        """Of the features."""
        return self.out / "features" / source.slug / pooling

    def describe(
        self, source: Source, poolings: Sequence[str], tick: Callable[[int, int], None] = lambda done, total: None
    ) -> None:
        """Store pooled features of every image, all poolings in one pass; what is there is not done again."""
        model = self.model(source)
        models = {self.folder(source, pooling): with_head(model, plain_head(pooling)) for pooling in poolings}

        def hear(done: int, total: int) -> None:
            self.tick(f"describing {source.slug}, images", done, total)
            tick(done, total)

        done = extract(self.dataset(source.dataset), models, self.options, tick=hear)
        self.broken[source.dataset] = done.broken

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

    def finished_run(self, config: RunConfig, images: str) -> Path | None:
        """A finished run of this configuration on these images, if there is one."""
        wanted = config.result_part()
        for root in (self.out / "finetune", *self.reuse):
            for path in sorted(root.glob("*/metrics.json")):
                folder = path.parent
                try:
                    stored = configs.from_plain(configs.read(folder / "config.yaml")).result_part()
                    same = stored == wanted and json.loads(path.read_text())["listing"].startswith(images)
                except (OSError, ValueError, KeyError):
                    continue
                if same:
                    return folder
        return None


def plain_head(pooling: str) -> HeadConfig:
    """The pooling alone: what all heads with it can be made from."""
    if pooling not in POOLINGS:
        raise unknown_name("reproduce", "pooling", pooling, POOLINGS)
    return HeadConfig(pooling=pooling, normalize=(), eps=0.0)
