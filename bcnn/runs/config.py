"""Everything that makes a run, as plain data, and its YAML file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..classify import CLASSIFIERS
from ..classify.rescale import RESCALES
from ..errors import unknown_name
from ..features.extract import ExtractOptions
from ..files import written_whole
from ..pooling import POOLINGS
from ..pooling.features import EPS_SCALES
from ..pooling.head import PRESETS, make_config
from ..pooling.normalize import NORMALIZATIONS, make_normalization, parse, with_options
from ..train.config import HOW as FINETUNE_HOW
from ..train.config import FinetuneConfig
from ..train.recipes import DEFAULT_RECIPE, with_recipe

FINETUNE_FIELDS = tuple(field.name for field in fields(FinetuneConfig))

# Change the way, not the result; of the dataset its list of images counts, not where it is.
HOW = ("spec", "batch", "workers", "strict", "device", "features")


@dataclass(frozen=True)
class RunConfig:
    """What `bcnn train` takes; the names are those of its options."""

    spec: str
    preset: tuple[str, ...] = ("improved_bcnn",)
    backbone: str = "vgg16"
    weights: str | None = "default"
    layer: str | None = None
    size: int | None = None
    eps: float | None = None
    eps_scale: str | None = None
    normalize: tuple[str, ...] | None = None
    forward: str | None = None  # methods of the matrix function; None: they choose themselves
    backward: str | None = None
    num_iters: int | None = None
    proj_dim: int | None = None
    flips: bool = True
    precision: str = "float32"
    classifier: str = "svm"
    rescale: str = "auto"  # what suits the classifier
    C: float = 1.0
    seed: int = 0
    batch: int = 4
    workers: int = 2
    strict: bool = False
    device: str = "cpu"
    features: str | None = None  # folder of the descriptors; None: in the run's own
    finetune: FinetuneConfig | None = None  # None: the network stays as it is

    def __post_init__(self) -> None:
        if not self.preset:
            raise ValueError("train: expected at least one preset, got none.")
        for preset in self.preset:
            if preset not in PRESETS:
                raise unknown_name("train", "preset", preset, PRESETS)
        if len(set(self.preset)) < len(self.preset):
            raise ValueError(f"train: expected each preset once, got {', '.join(self.preset)}.")
        if self.classifier not in CLASSIFIERS:
            raise unknown_name("train", "classifier", self.classifier, CLASSIFIERS)
        if self.rescale == "auto":  # SVMs that were trained apart; chosen by cross-validation (docs/classifiers.md)
            object.__setattr__(self, "rescale", "median" if CLASSIFIERS[self.classifier].one_vs_rest else "none")
        if self.rescale not in RESCALES:
            raise unknown_name("train", "rescale", self.rescale, RESCALES)
        if not 0 < self.C < math.inf:
            raise ValueError(f"train: expected C > 0, got {self.C}.")
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"train: expected a seed from 0 to 2^63 - 1, got {self.seed}.")
        if self.eps is not None and not 0 <= self.eps <= 1e6:
            raise ValueError(f"train: expected eps from 0 to 1e6, got {self.eps}.")
        for name, value in (("eps", self.eps), ("eps_scale", self.eps_scale)):
            if value is not None and not any(map(self._takes_ridge, self.preset)):
                raise ValueError(
                    f"train: expected a preset with a ridge for {name}, got {', '.join(self.preset)} alone."
                )
        if self.eps_scale is not None and self.eps_scale not in EPS_SCALES:
            raise unknown_name("train", "eps_scale", self.eps_scale, EPS_SCALES)
        self._check_methods()
        _ = self.extraction  # checks its own part

    def _check_methods(self) -> None:
        if not self.methods:
            return
        if not any(map(self._matrix_functions, self.preset)):
            raise ValueError(
                f"train: expected a preset with a matrix function for {' and '.join(self.methods)}, "
                f"got {', '.join(self.preset)}."
            )
        for preset in self.preset:
            make_config(preset, **self.head_options(preset))
            for text in self.head_options(preset)["normalize"] or ():
                make_normalization(text)

    @property
    def methods(self) -> dict[str, Any]:
        """The options of the matrix function that were asked for."""
        asked = {"forward": self.forward, "backward": self.backward, "num_iters": self.num_iters}
        return {name: value for name, value in asked.items() if value is not None}

    def _matrix_functions(self, preset: str) -> list[str]:
        texts = self.normalize or PRESETS[preset].normalize
        return [text for text in texts if NORMALIZATIONS[parse(text)[0]].matrix]

    def _takes_ridge(self, preset: str) -> bool:
        """With a single preset a ridge goes wherever it can, of several to those that have one by themselves."""
        can = "eps" in POOLINGS[PRESETS[preset].pooling].options
        return can and (len(self.preset) == 1 or PRESETS[preset].eps > 0)

    def head_options(self, preset: str) -> dict[str, Any]:
        """What was asked for that concerns this preset's head."""
        normalize = self.normalize
        if self.methods and (functions := self._matrix_functions(preset)):
            texts = normalize or PRESETS[preset].normalize
            normalize = tuple(with_options(text, **self.methods) if text in functions else text for text in texts)
        ridge = {"eps": self.eps, "eps_scale": self.eps_scale} if self._takes_ridge(preset) else {}
        return {"normalize": normalize, **ridge}

    @property
    def extraction(self) -> ExtractOptions:
        """The part that concerns extraction."""
        return ExtractOptions(
            flips=self.flips,
            precision=self.precision,
            batch=self.batch,
            workers=self.workers,
            strict=self.strict,
            device=self.device,
        )

    def result_part(self) -> dict[str, Any]:
        """The options that the result depends on."""
        return {name: value for name, value in to_plain(self).items() if name not in (*HOW, *FINETUNE_HOW)}


def to_plain(config: RunConfig) -> dict[str, Any]:
    """As YAML has it: one level, lists for tuples, options that are not set left out."""
    values = asdict(config)
    values["finetune"] = True if config.finetune else None
    plain = {}
    for name, value in {**values, **(asdict(config.finetune) if config.finetune else {})}.items():
        if value is not None:
            plain[name] = list(value) if isinstance(value, tuple) else value
        elif name == "weights":
            plain[name] = "none"
    return plain


def from_plain(content: Mapping[str, Any]) -> RunConfig:
    """The reverse."""
    known = [field.name for field in fields(RunConfig)]
    values: dict[str, Any] = {}
    for name, value in content.items():
        if name not in (*known, *FINETUNE_FIELDS):
            raise unknown_name("config", "option", name, (*known, *FINETUNE_FIELDS))
        values[name] = tuple(value) if isinstance(value, list) else value
    if values.get("weights") == "none":
        values["weights"] = None
    return from_options(values)


def from_options(values: Mapping[str, Any]) -> RunConfig:
    """Of options on one level, those of fine-tuning and its `recipe` among them; they need `finetune`."""
    rest = dict(values)
    recipe = rest.pop("recipe", None)
    own = {name: rest.pop(name) for name in FINETUNE_FIELDS if name in rest}
    if not rest.pop("finetune", None):
        if own or recipe:
            given = next(iter(own), "recipe")
            raise ValueError(f"train: expected finetune with {given}, got a run without fine-tuning.")
        return RunConfig(**rest)
    return RunConfig(**rest, finetune=FinetuneConfig(**with_recipe(recipe or DEFAULT_RECIPE, own)))


def write(config: RunConfig, path: Path) -> None:
    """The YAML file, which ``bcnn train --config`` takes."""
    import yaml

    with written_whole(path) as temporary:
        temporary.write_text(yaml.safe_dump(to_plain(config), sort_keys=False, allow_unicode=True))


def read(path: Path) -> dict[str, Any]:
    """Options from a YAML file."""
    import yaml

    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected YAML, got: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{path}: expected lines of `option: value`, got {type(content).__name__}.")
    return content


def folders(root: Path, presets: tuple[str, ...]) -> dict[str, Path]:
    """Where each preset's files go: one preset has the folder to itself."""
    return {preset: root if len(presets) == 1 else root / preset for preset in presets}
