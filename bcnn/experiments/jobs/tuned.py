"""Accuracy before and after fine-tuning, by `runs.finetune`.

Paper: Sec. 3.2, "Training and evaluation", and Sec. 3.4 and 3.5.
"""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...runs.config import RunConfig
from ...train.checkpoint import BEST
from ...train.config import FinetuneConfig
from ..contract import Subject

if TYPE_CHECKING:
    from ..gauge import Gauge
    from ..workshop import Workshop

METRICS = "metrics.json"
BACKWARD_COST = 2.2  # of a training step besides the forward pass, in forward passes: a rough guess


@dataclass(frozen=True)
class Tuned:
    """One run of `bcnn train --finetune`."""

    kind: ClassVar[str] = "tuned"
    dataset: str
    images: str
    network: str
    weights: str | None
    size: int
    epochs: int
    seed: int
    scheme: str  # what it is called; a key of `SCHEMES`

    @property
    def name(self) -> str:
        """Scheme and seed."""
        return f"{self.dataset}, {self.network} at {self.size} px, fine-tuned: {self.scheme}, seed {self.seed}"

    @property
    def sources(self) -> tuple[Any, ...]:
        """It describes images by itself."""
        return ()

    @property
    def before(self) -> tuple[Any, ...]:
        """Nothing."""
        return ()

    def seconds(self, gauge: Gauge) -> float:
        """Forward and backward passes, and describing all images before and after."""
        num_train, num_all = gauge.num_images(self.dataset)
        passes = self.epochs * num_train * (1 + BACKWARD_COST) + 4 * num_all  # two views, before and after
        return passes * gauge.view_s(self.network, self.weights, self.size)

    def config(self, spec: str, shop: Workshop | None = None) -> RunConfig:
        """Of the run."""
        own = SCHEMES[self.scheme]
        how: dict[str, Any] = {} if shop is None else {"device": shop.options.device, "workers": shop.options.workers}
        tuning = {"epochs": self.epochs, **own.get("finetune", {})}
        run = {name: value for name, value in own.items() if name != "finetune"}
        return RunConfig(
            spec=spec, backbone=self.network, weights=self.weights, size=self.size, seed=self.seed,
            finetune=FinetuneConfig(**tuning), **run, **how,
        )  # fmt: skip

    def run(self, shop: Workshop) -> dict[str, Any]:
        """What the run folder says; a finished run of the same configuration is taken as it is."""
        from ...features.team import Team
        from ...runs.finetune import finetune
        from ...train.engine import start

        folder = self.folder(shop)
        earlier = (folder / METRICS).exists()
        if not earlier:
            config = self.config(shop.data[self.dataset], shop)
            fabric = start(precision=config.precision, device=config.device)
            finetune(config, folder, fabric, team=Team(), tick=shop.tick, report=shop.report)
        result = read_run(folder)
        return {**result, "commit": None} if earlier else result  # nobody knows which it was

    def folder(self, shop: Workshop) -> Path:
        """Where its run is, or will be."""
        config = self.config(shop.data[self.dataset])
        return shop.finished_run(config, self.images) or shop.run_folder(self)

    def best(self, shop: Workshop) -> Path:
        """The tuned network."""
        folder = self.folder(shop)
        if not (folder / METRICS).exists():
            raise ValueError(f"reproduce: expected a finished run for {self.name}, got none in {folder}.")
        return folder / BEST


# The presets' own options are left open, so that a run of `bcnn train` with the same words is the same run.
SCHEMES: dict[str, dict[str, Any]] = {
    "bcnn": {"preset": ("bcnn",)},
    "lyapunov": {"backward": "lyapunov"},
    # Truncated, and steps that fail left out, as the paper does; plain SVD gradients are not finite in any batch.
    "svd_truncated": {"forward": "svd", "backward": "svd_truncated", "finetune": {"on_nonfinite": "skip"}},
    "unrolled": {"forward": "newton_schulz", "num_iters": 5, "backward": "unrolled"},
    "identity": {"backward": "identity", "finetune": {"lr": 0.0001}},  # diverges within an epoch at 0.001
    "log": {"preset": ("o2p",), "backward": "loewner"},
    "power": {"normalize": ("matrix_power(0.3)", "signed_sqrt", "l2"), "backward": "loewner"},
}


def tuned(subject: Subject, scheme: str) -> tuple[Tuned, ...]:
    """One job a seed."""
    return tuple(
        Tuned(subject.dataset, subject.images, subject.network, subject.weights, subject.tuned_size, subject.epochs,
              seed, scheme)
        for seed in subject.seeds
    )  # fmt: skip


def read_run(folder: Path) -> dict[str, Any]:
    """Accuracies, predictions and history from a run folder."""
    metrics = json.loads((folder / METRICS).read_text())
    with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    classes = {name: i for i, name in enumerate(metrics["per_class"])}
    tuning = metrics["finetune"]
    return {
        "accuracy": metrics["accuracy"],
        "before": tuning["before"]["accuracy"],
        "softmax": tuning["softmax"]["accuracy"],
        "num_test": metrics["num_test"],
        "truth": [classes[line["truth"]] for line in lines],
        "predicted": [classes[line["class1"]] for line in lines],
        "num_features": metrics["num_features"],
        "best_epoch": tuning["best_epoch"],
        "selected_on": tuning["selected_on"],
        "num_skipped": tuning["num_skipped"],
        "num_gradient_exceptions": tuning["num_gradient_exceptions"],
        "history": tuning["history"],
        "train_s": tuning["train_s"],
        "versions": metrics["versions"],
    }
