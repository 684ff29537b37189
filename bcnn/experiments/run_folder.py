"""What a run folder of `bcnn train` says, as records."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runs.predictions import text_of
from .plain import from_plain

METRICS = "metrics.json"


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """How far a training was after an epoch; epoch 0 is its start."""

    epoch: int
    train_loss: float | None
    train_accuracy: float | None
    val_loss: float | None
    val_accuracy: float | None
    held_out: str | None = None  # what the epoch is chosen on; the first version did not say
    num_skipped: int
    time_s: float
    wait_s: float


@dataclass(frozen=True)
class TunedResult:
    """What a fine-tuning gave: accuracies, predictions and history."""

    accuracy: float | None  # of SVMs after fine-tuning; None where no test image could be read
    before: float | None  # of SVMs before it
    softmax: float | None  # of the network as it was trained
    num_test: int
    num_broken: int  # images that could not be read
    truth: tuple[int, ...]  # true classes of the test images
    predicted: tuple[int, ...]
    num_features: int
    history: tuple[Epoch, ...]
    train_s: float
    best_epoch: int
    selected_on: str
    num_skipped: int
    num_gradient_exceptions: int


@dataclass(frozen=True)
class Run:
    """A finished run: what of metrics.json and predictions.csv is of use here."""

    dataset: str
    preset: str
    backbone: str
    image_size: int
    num_classes: int
    num_train: int
    num_test: int
    listing: str  # digest of names, classes and splits of the images
    broken: dict[str, str]
    versions: dict[str, str]
    time_s: dict[str, float]
    config: dict[str, Any]
    accuracy: float | None  # None without test images, and then what follows is not there either
    images: str | None = None  # digest of the images
    interval95: tuple[float, ...] = ()
    top5_accuracy: float = 0.0
    mean_class_accuracy: float = 0.0
    classes: tuple[str, ...] = ()
    truth: tuple[int, ...] = ()
    predicted: tuple[int, ...] = ()
    finetune: TunedResult | None = None


def read_run(folder: Path) -> Run:
    """The run in a folder; fields that are of no use here are left out."""
    try:
        content = json.loads((folder / METRICS).read_text())
        content |= {"classes": list(content.get("per_class", ())), "num_broken": len(content["broken"])}
        content |= _predictions(folder / "predictions.csv", content["classes"])
        if tuning := content.get("finetune"):
            accuracies = {name: tuning[name]["accuracy"] for name in ("before", "softmax")}
            content["finetune"] = {**content, **tuning, **accuracies}
        return from_plain(Run, content, strict=False)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{folder / METRICS}: expected that of a run of bcnn train, got: {error!r}; remove it, or leave it out."
        ) from None


def _predictions(path: Path, classes: list[str]) -> dict[str, list[int]]:
    """True and predicted classes of the test images."""
    found: dict[str, list[int]] = {"truth": [], "predicted": []}
    if classes and path.exists():
        numbers = {text_of(name): i for i, name in enumerate(classes)}
        with path.open(newline="", encoding="utf-8") as file:
            for line in csv.DictReader(file):
                found["truth"].append(numbers[line["truth"]])
                found["predicted"].append(numbers[line["class1"]])
    return found
