"""What is known of a run, as types: its metrics.json, the epochs in its checkpoints, the notes in its model's file.

Fields with a default came later than the others: files of earlier versions lack them. Fields that this version does
not know are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from .files import read_text

T = TypeVar("T")
METRICS = "metrics.json"
MODEL = "model.safetensors"


@dataclass(frozen=True)
class Epoch:
    """How an epoch of fine-tuning went; the record of epoch 0 is of the network before it."""

    epoch: int
    train_loss: float | None  # None before training, and where all steps were skipped
    train_accuracy: float | None
    val_loss: float | None  # None where no images are held out
    val_accuracy: float | None
    held_out: str | None = None  # the split of the held-out images
    num_skipped: int = 0
    time_s: float = 0.0
    wait_s: float = 0.0  # the part of it that was spent on waiting for images


@dataclass(frozen=True)
class NonFinite:
    """A step whose loss or gradient was not finite."""

    epoch: int
    batch: int  # of the epoch, from 0
    what: str  # "loss" or "gradient"
    layer: str
    images: tuple[str, ...]  # of the part of the batch in which it was seen

    def __str__(self) -> str:
        named = ", ".join(self.images[:3]) + (f" and {len(self.images) - 3} more" if len(self.images) > 3 else "")
        return (
            f"{self.what} not finite in epoch {self.epoch}, batch {self.batch}, first in {self.layer}; images: {named}"
        )


@dataclass(frozen=True)
class Accuracy:
    """The share of test images that are recognized; None where there are none."""

    accuracy: float | None = None
    interval95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Prediction:
    """One image's most probable classes, best first, and its true class where that is known."""

    name: str
    top: tuple[tuple[str, float], ...]  # class and probability
    truth: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether the best guess is the true class."""
        return self.top[0][0] == self.truth


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """The result of fine-tuning a network."""

    epochs: int
    selected_on: str
    best_epoch: int
    best_val_accuracy: float | None
    num_skipped: int
    num_gradient_exceptions: int
    nonfinite: tuple[NonFinite, ...]
    num_sessions: int
    num_processes: int
    memory: str = ""
    train_s: float
    wait_s: float
    history: tuple[Epoch, ...]
    before: Accuracy  # of the same classifier on the network before fine-tuning
    softmax: Accuracy  # of the scorer that the network was trained with


@dataclass(frozen=True, kw_only=True)
class FittedClassifier:
    """The classifier of a run; None stands for what a scorer that was trained with the network does not have."""

    kind: str
    C: float | None
    rescale: str = "none"
    converged: bool
    gap: float | None
    num_iters: int | None
    temperature: float
    calibrated: bool
    cv_accuracy: float | None
    untrained: tuple[str, ...] = ()  # classes without training images


@dataclass(frozen=True)
class ClassAccuracy:
    """The accuracy on the test images of one class; None where it has none."""

    accuracy: float | None
    num_test: int


@dataclass(frozen=True)
class Measured:
    """Accuracy and related numbers on test images."""

    accuracy: float
    interval95: tuple[float, float]
    num_test: int
    top5_accuracy: float | None
    mean_class_accuracy: float
    negative_log_likelihood: float | None
    calibration_error: float | None
    per_class: Mapping[str, ClassAccuracy]


@dataclass(frozen=True, kw_only=True)
class RunMetrics:
    """metrics.json of `bcnn train`; there, the fields of `test` stand among the others."""

    preset: str
    dataset: str
    listing: str  # a digest of the list of images
    images: str = ""  # a digest of what the images hold
    num_classes: int
    broken: Mapping[str, str]  # images that could not be read, and why
    backbone: str
    image_size: int
    descriptor_length: int
    seed: int
    config: Mapping[str, Any]  # as `runs.config.to_plain` has it
    versions: Mapping[str, str]
    finetune: FineTuned | None = None
    num_train: int
    test: Measured | None  # None without test images
    classifier: FittedClassifier
    time_s: Mapping[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        content = _flat(self)
        return content if self.finetune else {n: value for n, value in content.items() if n != "finetune"}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> RunMetrics:
        """Make the metrics from the content of metrics.json."""
        return read_as(cls, {**content, "test": None if content["accuracy"] is None else content})


@dataclass(frozen=True)
class EvaluationMetrics:
    """The content of the metrics.json of `bcnn evaluate`."""

    dataset: str
    split: str
    listing: str
    broken: Mapping[str, str]
    versions: Mapping[str, str]
    test: Measured

    def to_json(self) -> dict[str, Any]:
        """Return the content of metrics.json."""
        return _flat(self)


@dataclass(frozen=True)
class Notes:
    """What a model's file says besides the network: what prediction needs, and where the network comes from."""

    classes: tuple[str, ...]
    temperature: float = 1.0
    calibrated: bool = False
    flips: bool = True
    precision: str = "float32"
    dataset: str = ""
    accuracy: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.classes) or len(set(self.classes)) != len(self.classes):
            raise ValueError("expected class names, each once")
        number = isinstance(self.temperature, int | float) and not isinstance(self.temperature, bool)
        if not number or not 0 < self.temperature < math.inf:
            raise ValueError(f"expected a temperature > 0, got {self.temperature!r}")


def find_runs(folder: Path, *patterns: str) -> list[Path]:
    """Files that `bcnn train` wrote of a run, by patterns; those of `bcnn evaluate` bear the same name."""
    return [path for pattern in patterns for path in sorted(folder.glob(pattern)) if not _is_evaluation(path)]


def _is_evaluation(path: Path) -> bool:
    try:
        content = json.loads(read_text(path)) if path.name == METRICS else None
    except (OSError, ValueError):
        return False  # who reads it as a run says what is wrong
    return isinstance(content, dict) and "split" in content and "preset" not in content


def read(path: Path) -> RunMetrics:
    """Read the metrics.json of a finished run."""
    try:
        return RunMetrics.from_json(json.loads(read_text(path)))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected the metrics of a run of bcnn train, got: {error!r}.") from None


def read_as(kind: type[T], content: Mapping[str, Any]) -> T:
    """A dataclass, and those inside it, from their JSON; lists become tuples, unknown fields are ignored."""
    return kind(**{name: _value(hint, content[name]) for name, hint in get_type_hints(kind).items() if name in content})


def _value(hint: Any, value: Any) -> Any:
    inner = get_args(hint)
    if is_dataclass(hint) and value is not None:
        return read_as(hint, value)  # type: ignore[arg-type]
    if get_origin(hint) is tuple:
        return tuple(_value(inner[0], one) for one in value)
    if get_origin(hint) is Mapping:
        return {name: _value(inner[1], one) for name, one in value.items()}
    return _value(inner[0], value) if inner and value is not None else value  # of an optional field


def _flat(metrics: RunMetrics | EvaluationMetrics) -> dict[str, Any]:
    """The fields, with those of `test` in its place."""
    content: dict[str, Any] = {}
    for name, value in asdict(metrics).items():
        content |= {name: value} if name != "test" else value or {"accuracy": None, "num_test": 0}
    return content
