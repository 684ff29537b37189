"""Accuracy before and after fine-tuning, by `runs.finetune`.

Paper: Sec. 3.2, "Training and evaluation", and Sec. 3.4 and 3.5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...finetune.checkpoint import BEST
from ...finetune.config import HOW, FinetuneConfig
from ...finetune.recipes import with_recipe
from ...machine import commit
from ...metrics import METRICS, read
from ...pooling.head import PAPERS_EPS, PRESETS
from ...pooling.head import ridge_in as ridge_in_head
from ...runs import config as configs
from ...runs.config import RunConfig
from ..gauge import Gauge
from ..plain import later, short_digest, to_plain
from ..records import Outcome, Subject
from ..run_folder import TunedResult, tuned_result
from ..workshop import Workshop, slug_of

EXACT_ROOT = "signed_sqrt(delta=0)"
RIDGE_OF: dict[str, dict[str, Any]] = {  # what is not ours, as `bcnn.Head` takes it
    "paper": {"eps": PAPERS_EPS, "eps_scale": "largest"},
    "absolute": {"eps": 1.0, "eps_scale": "absolute"},  # to the letter; for features like the paper's
}
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
        return f"{self.dataset}, {self.network}, {self.size} px, {self.kind}, {self.scheme}, seed {self.seed}"

    @property
    def sources(self) -> tuple[()]:
        return ()  # the run describes images by itself

    def seconds(self, gauge: Gauge) -> float:
        """Forward and backward passes, and describing all images before and after."""
        num_train, num_all = gauge.shop.num_images(self.dataset)
        passes = self.epochs * num_train * (1 + BACKWARD_COST) + 4 * num_all  # two views, before and after
        return passes * gauge.view(self.network, self.size).seconds

    def run(self, shop: Workshop) -> Outcome[TunedResult]:
        """What the run folder says; a finished run of the same configuration is taken as it is."""
        from ...descriptors.team import Team
        from ...finetune.engine import start
        from ...runs.finetune import finetune

        folder, earlier = self.new_folder(shop), self.finished(shop)
        if earlier is None:
            config = self._config(shop)
            fabric = start(precision=config.precision, device=config.device)
            finetune(config, folder, fabric, team=Team(), progress=shop.progress)
        place = earlier or folder
        run = read(place / METRICS)
        shop.add_broken(self.dataset, run.broken)
        known = None if earlier else commit()  # of an earlier one nobody knows it
        return Outcome(tuned_result(run, place), dict(run.versions), known)

    def new_folder(self, shop: Workshop) -> Path:
        """The folder in which a new run is written."""
        return shop.out / "finetune" / f"{self.scheme}_{self.network.replace('/', '-')}_{self.seed}_{self.digest}"

    @property
    def digest(self) -> str:
        """A short digest that tells its folder from those of other jobs."""
        return short_digest({"kind": self.kind, **to_plain(self)})

    def before_folder(self, shop: Workshop) -> Path:
        """Descriptors before fine-tuning, the same for all seeds unless weights are random."""
        slug = slug_of(self.dataset, self.images, self.network, self.parameters, self.size)
        seed = f"_{self.seed}" if shop.weights is None else ""
        head = {name: value for name, value in json.loads(self.options).items() if name not in ("finetune", "rescale")}
        return shop.out / "descriptors" / f"{slug}_before_{self.scheme}-{short_digest(head)}{seed}"

    def finished(self, shop: Workshop) -> Path | None:
        """The folder of a finished run of this configuration on these images, if there is one."""
        if (self.new_folder(shop) / METRICS).exists():
            return self.new_folder(shop)
        wanted, listing = self._config(shop).result_part(), shop.listing(self.dataset)
        for root in shop.reuse:
            for pattern in (METRICS, f"*/{METRICS}", f"finetune/*/{METRICS}"):
                for path in sorted(root.glob(pattern)):
                    with suppress(OSError, ValueError, KeyError, TypeError):  # others' files may be there, too
                        run = read(path)
                        same = run.listing == listing and run.images in ("", self.images)
                        if same and configs.from_plain(dict(run.config)).result_part() == wanted:
                            return path.parent
        return None

    def best(self, shop: Workshop) -> Path:
        """The file with the weights of the fine-tuned network."""
        folder = self.finished(shop)
        if folder is None:
            raise ValueError(f"reproduce: expected a finished run for {self.name}, got none in {shop.out}.")
        return folder / BEST

    def _config(self, shop: Workshop) -> RunConfig:
        how = shop.options
        run: dict[str, Any] = _tuples(json.loads(self.options))
        tuning: dict[str, Any] = _tuples(run.pop("finetune"))
        tuning |= {name: v for name, v in SCHEMES[self.scheme].get("finetune", {}).items() if name in HOW}
        networks = ",".join(filter(None, (self.network, run.pop("partner", None))))
        return RunConfig(
            spec=shop.data[self.dataset], backbone=networks, weights=shop.weights, size=self.size, seed=self.seed,
            finetune=FinetuneConfig(epochs=self.epochs, **tuning), device=how.device, workers=how.workers,
            batch=how.batch, strict=how.strict, engine=how.engine, descriptors=str(self.before_folder(shop)), **run,
        )  # fmt: skip


# The presets' own options are left open, so that a run of `bcnn train` with the same words is the same run.
SCHEMES: dict[str, dict[str, Any]] = {
    "bcnn": {"preset": ("bcnn",)},
    "lyapunov": {"backward": "lyapunov"},
    # Truncated, steps that fail left out, and in single precision, as the paper does; plain SVD gradients are not
    # finite in any batch.
    "svd_truncated": {
        "normalize": ("matrix_sqrt(forward='svd', backward='svd_truncated', precision='fast')", "signed_sqrt", "l2"),
        "finetune": {"on_nonfinite": "skip"},
    },
    "unrolled": {"forward": "newton_schulz", "num_iters": 5, "backward": "unrolled"},
    "identity": {"backward": "identity", "finetune": {"lr": 0.0001}},  # diverges within an epoch at 0.001
    "log": {"preset": ("o2p",), "backward": "loewner"},
    "power": {"normalize": ("matrix_power(0.3)", "signed_sqrt", "l2"), "backward": "loewner"},
    # Other systems of Table 4.
    "cbp": {"preset": ("cbp",)},
    "lrbp": {"preset": ("bcnn",), "normalize": ("none",), "scorer": "lrbp"},
    "kernel": {"preset": ("kernel",)},
    "two": {"preset": ("bcnn",), "pooling": "asymmetric", "partner": ""},
    "stn": {"preset": ("bcnn",), "front": "stn(transformers=2, scale=0.5, start=tiling)",
            "finetune": {"lr_scale": ("front=0.0001",)}},
    "isqrt_cov": {"preset": ("isqrt_cov",)},
    "democratic": {"preset": ("bcnn",), "pooling": "democratic(eps=0)"},
}  # fmt: skip

# The network that stands beside another in the B-CNN of two networks; the paper's pair is VGG-M and VGG-D.
PARTNERS = {"vgg_m": "vgg16", "alexnet": "mobilenet_v2", "tiny": "tiny(cut=relu2)"}


def partner_of(network: str) -> str:
    """The second network of a model of two."""
    return PARTNERS.get(network, "alexnet")


def tuned(subject: Subject, scheme: str) -> tuple[Tuned, ...]:
    """The jobs of a fine-tuned row, one per seed."""
    return tuple(
        Tuned(subject.dataset, subject.images, subject.network, subject.weights, subject.parameters, subject.tuned_size,
              subject.epochs, seed, scheme, _options(subject, scheme), subject.recipe)
        for seed in subject.seeds
    )  # fmt: skip


def _options(subject: Subject, scheme: str) -> str:
    """Every number that the result depends on: a recipe that changes one day is another job then."""
    run = dict(SCHEMES[scheme])
    if "partner" in run:
        run["partner"] = partner_of(subject.network)
    given = {"freeze_until": subject.freeze_until, **run.pop("finetune", {})}
    tuning = asdict(FinetuneConfig(**with_recipe(subject.recipe, given)))
    run |= {"rescale": subject.rescale, "finetune": {n: v for n, v in tuning.items() if n not in (*HOW, "epochs")}}
    if not subject.flips:
        run["flips"] = False
    if subject.ridge != "ours":
        preset = PRESETS[run.get("preset", ("improved_bcnn",))[0]]
        run["normalize"] = papers_own(run.get("normalize", preset.normalize))
        if ridge_in_head(preset):
            run |= RIDGE_OF[subject.ridge]
    return json.dumps(run, sort_keys=True)


def ridge_in(options: Mapping[str, Any]) -> str:
    """Whose ridge and signed square root it is, of `Subject.ridge`."""
    if EXACT_ROOT not in options.get("normalize", ()):
        return "ours"
    return "absolute" if options.get("eps_scale") == "absolute" else "paper"


def _tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Turn the lists of JSON back into tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}


def papers_own(normalize: Sequence[str]) -> tuple[str, ...]:
    """The same normalizations with the exact signed square root (Sec. 2.1)."""
    return tuple(EXACT_ROOT if text == "signed_sqrt" else text for text in normalize)
