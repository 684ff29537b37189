"""Accuracy before and after fine-tuning, by `runs.finetune`.

Paper: Sec. 3.2, "Training and evaluation", and Sec. 3.4 and 3.5.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...pooling.head import PAPERS_EPS, PRESETS
from ...pooling.head import ridge_in as ridge_in_head
from ...runs.config import RunConfig
from ...runs.predictions import text_of
from ...train.checkpoint import BEST
from ...train.config import HOW, FinetuneConfig
from ...train.recipes import with_recipe
from ..contract import Subject, later

if TYPE_CHECKING:
    from ..gauge import Gauge
    from ..workshop import Workshop

METRICS = "metrics.json"
EXACT_ROOT = "signed_sqrt(delta=0)"
BACKWARD_COST = 2.2  # of a training step besides the forward pass, in forward passes: a rough guess


@dataclass(frozen=True)
class Tuned:
    """One run of `bcnn train --finetune`."""

    kind: ClassVar[str] = "tuned"
    dataset: str
    images: str
    network: str
    weights: str
    parameters: str  # digest, before fine-tuning
    size: int
    epochs: int
    seed: int
    scheme: str  # a key of `SCHEMES`
    options: str  # everything else that the result depends on, as JSON
    recipe: str = later("ours")  # what its options of fine-tuning are called

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
        return passes * gauge.view_s(self.network, self.size)

    def config(self, shop: Workshop) -> RunConfig:
        """Of the run."""
        how = shop.options
        run: dict[str, Any] = _tuples(json.loads(self.options))
        tuning: dict[str, Any] = _tuples(run.pop("finetune"))
        tuning |= {name: v for name, v in SCHEMES[self.scheme].get("finetune", {}).items() if name in HOW}
        return RunConfig(
            spec=shop.data[self.dataset], backbone=self.network, weights=shop.weights, size=self.size, seed=self.seed,
            finetune=FinetuneConfig(epochs=self.epochs, **tuning), device=how.device, workers=how.workers,
            batch=how.batch, strict=how.strict, features=str(shop.before_folder(self)), **run,
        )  # fmt: skip

    def run(self, shop: Workshop) -> dict[str, Any]:
        """What the run folder says; a finished run of the same configuration is taken as it is."""
        from ...features.team import Team
        from ...runs.finetune import finetune
        from ...train.engine import start

        folder = self.folder(shop)
        earlier = (folder / METRICS).exists()
        if not earlier:
            config = self.config(shop)
            fabric = start(precision=config.precision, device=config.device)
            finetune(config, folder, fabric, team=Team(), tick=shop.tick, report=shop.report)
        result, broken = read_run(folder)
        shop.add_broken(self.dataset, broken)
        return {**result, "commit": None} if earlier else result  # nobody knows which it was

    def folder(self, shop: Workshop) -> Path:
        """Where its run is, or will be."""
        return shop.finished_run(self) or shop.run_folder(self)

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
    # Truncated, steps that fail left out, and in single precision, as the paper does; plain SVD gradients are not
    # finite in any batch.
    "svd_truncated": {
        "normalize": (
            "matrix_sqrt(forward='svd', backward='svd_truncated', precision='fast')",
            "signed_sqrt",
            "l2",
        ),
        "finetune": {"on_nonfinite": "skip"},
    },
    "unrolled": {"forward": "newton_schulz", "num_iters": 5, "backward": "unrolled"},
    "identity": {"backward": "identity", "finetune": {"lr": 0.0001}},  # diverges within an epoch at 0.001
    "log": {"preset": ("o2p",), "backward": "loewner"},
    "power": {"normalize": ("matrix_power(0.3)", "signed_sqrt", "l2"), "backward": "loewner"},
}


def tuned(subject: Subject, scheme: str) -> tuple[Tuned, ...]:
    """One job a seed."""
    return tuple(
        Tuned(subject.dataset, subject.images, subject.network, subject.weights, subject.parameters, subject.tuned_size,
              subject.epochs, seed, scheme, _options(subject, scheme), subject.recipe)
        for seed in subject.seeds
    )  # fmt: skip


def _options(subject: Subject, scheme: str) -> str:
    """Every number that the result depends on: a recipe that changes one day is another job then."""
    run = dict(SCHEMES[scheme])
    given = {"freeze_until": subject.freeze_until, **run.pop("finetune", {})}
    tuning = asdict(FinetuneConfig(**with_recipe(subject.recipe, given)))
    run |= {"rescale": subject.rescale, "finetune": {n: v for n, v in tuning.items() if n not in (*HOW, "epochs")}}
    if subject.ridge == "paper":
        preset = PRESETS[run.get("preset", ("improved_bcnn",))[0]]
        run["normalize"] = papers_own(run.get("normalize", preset.normalize))
        if ridge_in_head(preset):
            run |= {"eps": PAPERS_EPS, "eps_scale": "largest"}
    return json.dumps(run, sort_keys=True)


def ridge_in(options: Mapping[str, Any]) -> str:
    """Whose ridge and signed square root it is, of `Subject.ridge`."""
    return "paper" if EXACT_ROOT in options.get("normalize", ()) else "ours"


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Lists of JSON as the tuples they were."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def papers_own(normalize: Sequence[str]) -> tuple[str, ...]:
    """The same normalizations with the exact signed square root (Sec. 2.1)."""
    return tuple(EXACT_ROOT if text == "signed_sqrt" else text for text in normalize)


def read_run(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Accuracies, predictions and history from a run folder; and the images that could not be read."""
    try:
        metrics = json.loads((folder / METRICS).read_text())
        with (folder / "predictions.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        classes = {text_of(name): i for i, name in enumerate(metrics["per_class"])}
        tuning = metrics["finetune"]
        result = {
            "accuracy": metrics["accuracy"],
            "before": tuning["before"]["accuracy"],
            "softmax": tuning["softmax"]["accuracy"],
            "num_test": metrics["num_test"],
            "num_broken": len(metrics["broken"]),
            "truth": [classes[line["truth"]] for line in lines],
            "predicted": [classes[line["class1"]] for line in lines],
            "num_features": metrics["num_features"],
            "history": tuning["history"],
            "train_s": tuning["train_s"],
            "versions": metrics["versions"],
        }
        names = ("best_epoch", "selected_on", "num_skipped", "num_gradient_exceptions")
        return {**result, **{name: tuning[name] for name in names}}, metrics["broken"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"reproduce: expected a run of bcnn train --finetune in {folder}, got one without {error}; "
            "it may be of another version: remove it, or leave out --reuse."
        ) from None
