"""Everything that makes a run, as plain data, and its YAML file.

Nothing heavy is imported before a configuration is made: the command line reads the declarations for `--help`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import unknown_name
from ..files import read_text, written_whole
from ..finetune.config import HOW as FINETUNE_HOW
from ..finetune.config import PANEL as FINETUNE
from ..finetune.config import FinetuneConfig, FinetuneSession
from ..finetune.recipes import DEFAULT_RECIPE, with_recipe
from ..options import Names, Option, check, declared_by, option, without_need

if TYPE_CHECKING:
    from ..descriptors.extract import ExtractOptions
    from ..pooling.head import HeadConfig

NETWORK, CLASSIFIER, WORK = "Network and pooling", "Classifier", "How the work is done"
MOST_BYTES = 2**24  # of a YAML file
RESCALES = Names("classify.rescale", "RESCALES")

_network, _classifier = partial(option, panel=NETWORK), partial(option, panel=CLASSIFIER)
_work = partial(option, panel=WORK, result=False)


@dataclass(frozen=True)
class RunConfig:
    """What `bcnn train` takes; the names are those of its options."""

    # Of the dataset its list of images makes the result, not where it is.
    spec: str = option(
        argument=True,
        result=False,
        help="The dataset: a folder of images, or one of those that `bcnn datasets list` shows.",
    )
    preset: tuple[str, ...] = _network(
        ("improved_bcnn",),
        choices=Names("pooling.head", "PRESETS"),
        commas=True,
        help="How the features of an image become its descriptor. Several presets, separated by commas, are compared, "
        "and the images go through the network once for all of them.",
    )
    pooling: str | None = _network(
        None,
        show_default="the preset's",
        help="The pooling with its options, such as 'bilinear(eps=1, eps_scale=absolute)'; see `bcnn methods`.",
    )
    front: str | None = _network(
        None, show_default="nothing", help="A part before the network, such as a spatial transformer."
    )
    backbone: str = _network(
        "vgg16",
        help="The network: one of those in docs/models.md, or timm/NAME for any network of timm. Two, separated by "
        "a comma, for a pooling that takes two; each may have options of its own, such as 'vgg16(cut=relu4_3)'.",
    )
    weights: str | None = _network(
        "default",
        none="none",
        help="The weights of the network: default, none for random ones, a name of `bcnn weights list`, or the "
        ".safetensors file of a run.",
    )
    cut: str | None = _network(None, show_default="the usual one", help="The last layer of the network that is used.")
    size: int | None = _network(None, at_least=1, show_default="448", help="The side of the images in pixels.")
    eps: float | None = _network(
        None,
        at_least=0,
        at_most=1_000_000,
        show_default="the preset's",
        help="The ridge that is added to the pooled matrix, in units of --eps-scale.",
    )
    eps_scale: str | None = _network(
        None,
        choices=Names("pooling.features", "EPS_SCALES"),
        show_default="trace",
        help="The unit of the ridge. largest is the largest eigenvalue: the paper's ridge is --eps 1e-6 of it.",
    )
    normalize: tuple[str, ...] | None = _network(
        None,
        show_default="the preset's",
        help="A normalization, such as 'matrix_power(0.3)'. Repeat the option for more; none means no normalization.",
    )
    triangle: bool = _network(
        True,
        help="Keep only the upper triangle of a symmetric matrix: half of its numbers, and the same classifier.",
    )
    forward: str | None = _network(
        None,
        choices=Names("matfun.forward", "FORWARDS", more=("auto",)),
        show_default="the best for the function",
        help="The algorithm for the matrix function; see `bcnn methods`.",
    )
    backward: str | None = _network(
        None,
        choices=Names("matfun.backward", "BACKWARDS", more=("auto",)),
        show_default="lyapunov for the square root, else loewner",
        help="The rule for the gradient of the matrix function; see `bcnn methods`.",
    )
    num_iters: int | None = _network(
        None, at_least=1, at_most=1000, show_default="the method's", help="The number of steps of an iterative method."
    )
    proj_dim: int | None = _network(
        None,
        at_least=1,
        at_most=65536,
        show_default="all are kept",
        help="Reduce the channels to this number by a random projection.",
    )
    flips: bool = _network(True, help="Describe the mirrored image as well.")
    precision: str = _network(
        "float32",
        choices=Names("descriptors.extract", "PRECISIONS"),
        help="The kind of numbers that the network computes with.",
    )
    classifier: str = _classifier(
        "svm",
        choices=Names("classify", "CLASSIFIERS"),
        help="The linear classifier that is fitted to the descriptors; see docs/classifiers.md.",
    )
    scorer: str = _classifier(
        "linear", write_default=False, help="The part that turns a descriptor into the scores of the classes."
    )
    rescale: str = _classifier(
        "auto",
        choices=replace(RESCALES, more=("auto",)),
        show_default="median for SVMs",
        help="Bring the classifiers of the classes to one scale. The authors take the median.",
    )
    C: float = _classifier(1.0, above=0, help="The weight of the errors against the margin.")
    boost: int | None = _classifier(
        None,
        at_least=1,
        show_default="no boosting",
        help="Boost networks for this many rounds, each on what those before it get wrong (BoostCNN). The result is "
        "an ensemble. With --finetune a whole network is trained in every round.",
    )
    shrinkage: float = _classifier(
        0.1, above=0, at_most=1, needs="boost", write_default=False, help="The share of each step that boosting takes."
    )
    boost_size: tuple[int, ...] = _classifier(
        (),
        at_least=1,
        needs="boost",
        write_default=False,
        show_default="--size",
        help="The side of the images in pixels. Repeat the option for several sizes, which the rounds take in turn.",
    )
    seed: int = _work(
        0,
        at_least=0,
        below=2**63,
        result=True,
        help="The seed of everything random: weights, projections, folds for calibration, the order of images.",
    )
    batch: int = _work(4, at_least=1, help="How many images go through the network at a time.")
    workers: int = _work(2, at_least=1, help="How many threads decode images.")
    strict: bool = _work(False, help="Stop at an image that cannot be read, instead of leaving it out.")
    device: str = _work(
        "cpu",
        show_default="a GPU if there is one, else cpu",
        help="The device that computes: cpu, or cuda (untested).",
    )
    engine: str = _work(
        "winograd",
        choices=Names("models.engines", "ENGINES"),
        write_default=False,
        help="The way in which a frozen network is computed on a CPU: winograd needs half the time for large "
        "convolutions, ncnn (pip install 'bcnn[ncnn]') less, torch is torch's own. Descriptors agree to the rounding "
        "of float32.",
    )
    descriptors: str | None = _work(
        None,
        show_default="in the run folder",
        help="A folder for the descriptors, so that several runs can share them.",
    )
    finetune: FinetuneConfig | None = option(
        None, panel=FINETUNE, help="Train the whole network first, as in Sec. 3.4 of the paper."
    )

    def __post_init__(self) -> None:
        check(self, "train")
        if not self.preset:
            raise ValueError("train: expected at least one preset, got none.")
        if len(set(self.preset)) < len(self.preset):
            raise ValueError(f"train: expected each preset once, got {', '.join(self.preset)}.")
        self._check_parts()
        if self.rescale == "auto":  # SVMs that were trained apart; chosen by cross-validation (docs/classifiers.md)
            from ..classify import CLASSIFIERS

            usual = "median" if CLASSIFIERS[self.classifier].one_vs_rest else "none"
            object.__setattr__(self, "rescale", usual)
        for name in ("eps", "eps_scale"):
            if getattr(self, name) is not None and not any(map(self._takes_ridge, self.preset)):
                raise ValueError(
                    f"train: expected a preset with a ridge for {name}, got {', '.join(self.preset)} alone."
                )
        self._check_methods()
        self._check_boost()
        _ = self.extraction  # checks its own part

    def _check_parts(self) -> None:
        from ..fronts import FRONTS
        from ..pooling import POOLINGS
        from ..pooling.normalize import NORMALIZATIONS
        from ..scorers import SCORERS

        for name, registry in (("pooling", POOLINGS), ("front", FRONTS), ("scorer", SCORERS)):
            if getattr(self, name) is not None:  # a part has one text, however it is written
                object.__setattr__(self, name, str(registry.read(getattr(self, name))))
        if self.normalize is not None and self.normalize != ("none",):
            texts = tuple(str(NORMALIZATIONS.read(text)) for text in self.normalize)
            object.__setattr__(self, "normalize", texts or ("none",))

    def _check_boost(self) -> None:
        if self.boost is None:
            return
        if len(self.preset) > 1 or self.scorer != "linear":
            raise ValueError(
                "train: expected one preset and the linear scorer with boost, whose rounds fit linear classifiers, got "
                f"{', '.join(self.preset)} and {self.scorer}."
            )

    def _check_methods(self) -> None:
        if not self.methods:
            return
        from ..pooling.head import options_of
        from ..pooling.normalize import NORMALIZATIONS

        if not any(map(self._has_matrix_function, self.preset)):
            raise ValueError(
                f"train: expected a preset with a matrix function for {' and '.join(self.methods)}, "
                f"got {', '.join(self.preset)}."
            )
        for text in (text for preset in self.preset for text in self.head(preset).normalize):
            if "backward" in options_of(NORMALIZATIONS, text):
                NORMALIZATIONS.make(text)  # refuses methods that do not go together

    @property
    def methods(self) -> dict[str, Any]:
        """The options of the matrix function that were asked for."""
        asked = {"forward": self.forward, "backward": self.backward, "num_iters": self.num_iters}
        return {name: value for name, value in asked.items() if value is not None}

    @property
    def normalizations(self) -> tuple[str, ...] | None:
        """Those that were asked for; "none" alone stands for no normalization at all."""
        return () if self.normalize == ("none",) else self.normalize

    def _has_matrix_function(self, preset: str) -> bool:
        from ..pooling.head import PRESETS, options_of
        from ..pooling.normalize import NORMALIZATIONS

        texts = self.normalizations if self.normalizations is not None else PRESETS[preset].normalize
        return any("backward" in options_of(NORMALIZATIONS, text) for text in texts)

    def _takes_ridge(self, preset: str) -> bool:
        """With a single preset a ridge goes wherever it can, of several to those that have one by themselves."""
        from ..pooling.head import make_config, ridge_in

        ridge = ridge_in(make_config(preset, pooling=self.pooling))
        return ridge is not None and (len(self.preset) == 1 or ridge > 0)

    def head(self, preset: str) -> HeadConfig:
        """The preset's head with what was asked for that concerns it."""
        from ..pooling.head import make_config

        methods = self.methods if self._has_matrix_function(preset) else {}
        ridge = {"eps": self.eps, "eps_scale": self.eps_scale} if self._takes_ridge(preset) else {}
        given = {"pooling": self.pooling, "normalize": self.normalizations, "triangle": self.triangle}
        return make_config(preset, **given, **ridge, **methods)

    @property
    def extraction(self) -> ExtractOptions:
        """The part that concerns extraction."""
        from ..descriptors.extract import ExtractOptions

        names = ("flips", "precision", "batch", "workers", "strict", "device", "engine")
        return ExtractOptions(**{name: getattr(self, name) for name in names})

    def result_part(self) -> dict[str, Any]:
        """The options that the result depends on."""
        return {name: value for name, value in to_plain(self).items() if name not in (*HOW, *FINETUNE_HOW)}


# Change the way, not the result.
HOW = tuple(name for name, declared in declared_by(RunConfig).items() if not declared.result)
OPTIONS: dict[str, Option] = {**declared_by(RunConfig), **declared_by(FinetuneConfig)}  # one level, as in YAML


def to_plain(config: RunConfig) -> dict[str, Any]:
    """As YAML has it: one level, lists for tuples, options that are not set left out."""
    values = {**vars(config), **(vars(config.finetune) if config.finetune else {})}
    plain = {name: OPTIONS[name].write(value) for name, value in values.items()}
    return {name: value for name, value in plain.items() if value is not None}


def from_plain(content: Mapping[str, Any]) -> RunConfig:
    """A configuration from its YAML; an unknown option is an error."""
    for name in content:
        if name not in OPTIONS:
            raise unknown_name("config", "option", name, OPTIONS)
    return from_options({name: OPTIONS[name].read(value) for name, value in content.items()})


def from_options(values: Mapping[str, Any]) -> RunConfig:
    """Of options on one level, those of fine-tuning and its `recipe` among them; they need `finetune`."""
    lacking = without_need(values, {**OPTIONS, **declared_by(FinetuneSession)})
    if lacking is not None:
        raise ValueError(f"train: {lacking.name} needs {lacking.needs}; give both, or leave {lacking.name} out.")
    rest = dict(values)
    recipe = rest.pop("recipe", None)
    own = {name: rest.pop(name) for name in declared_by(FinetuneConfig) if name in rest}
    if not rest.pop("finetune", None):
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

    class Plain(yaml.SafeLoader):
        """Without aliases: a few lines of them stand for billions of values."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("an alias (*name), where options are written out")
            return super().compose_node(parent, index)

    try:
        content = yaml.load(read_text(path, most=MOST_BYTES), Loader=Plain)
    except RecursionError:
        raise ValueError(f"{path}: expected YAML, got lists of thousands of levels.") from None
    except (yaml.YAMLError, ArithmeticError, AttributeError, TypeError, ValueError) as error:  # a date that is none
        raise ValueError(f"{path}: expected YAML, got: {' '.join(str(error).split())}.") from None
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise ValueError(f"{path}: expected lines of `option: value`, got {type(content).__name__}.")
    return content


def folders(root: Path, presets: tuple[str, ...]) -> dict[str, Path]:
    """Where each preset's files go: one preset has the folder to itself."""
    return {preset: root if len(presets) == 1 else root / preset for preset in presets}
