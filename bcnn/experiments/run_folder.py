"""What a run folder of `bcnn train` says of a fine-tuning."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..data.contract import cell
from ..files import MOST_TEXT, check_regular
from ..metrics import Epoch, RunMetrics


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
    descriptor_length: int
    history: tuple[Epoch, ...]
    train_s: float
    best_epoch: int
    selected_on: str
    num_skipped: int
    num_gradient_exceptions: int


def tuned_result(run: RunMetrics, folder: Path) -> TunedResult:
    """The result of a finished run in its folder."""
    own, test = run.finetune, run.test
    if own is None:
        raise ValueError(f"reproduce: expected a run of bcnn train --finetune in {folder}, got another.")
    truth, predicted = answers(folder, test.per_class if test else ())
    return TunedResult(
        test.accuracy if test else None, own.before.accuracy, own.softmax.accuracy, test.num_test if test else 0,
        len(run.broken), truth, predicted, run.descriptor_length, own.history, own.train_s, own.best_epoch,
        own.selected_on, own.num_skipped, own.num_gradient_exceptions,
    )  # fmt: skip


def answers(folder: Path, classes: Iterable[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """True and predicted classes of the test images of a run, as predictions.csv has them; none where it is not."""
    numbers = {cell(name): i for i, name in enumerate(classes)}
    path = folder / "predictions.csv"
    if not numbers or not path.exists():
        return (), ()
    check_regular(path, MOST_TEXT)
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return tuple(numbers[line["truth"]] for line in lines), tuple(numbers[line["class1"]] for line in lines)
