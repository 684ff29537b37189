"""The end of a run: classifier, evaluation, and the files that tell of them.

Paper: Sec. 3.2, "Training and evaluation": one-vs-rest linear SVMs with C = 1, predictions averaged over an image and
its flipped copy.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import machine
from ..classify.accuracy import Evaluation
from ..classify.evaluate import Tested, fit_rows, score_rows
from ..classify.gram import scores as linear_scores
from ..data.contract import TEST, TRAIN, Dataset
from ..descriptors.folder import DescriptorRows, Descriptors
from ..files import written_whole
from ..metrics import (
    METRICS,
    MODEL,
    EvaluationMetrics,
    FineTuned,
    FittedClassifier,
    Measured,
    Notes,
    Prediction,
    RunMetrics,
    read_as,
)
from ..models.bcnn import BCNN, with_scorer
from ..models.files import save
from ..progress import Progress, within
from ..report import classes as pictures
from . import config as configs
from .config import RunConfig
from .explain import marks_of
from .neighbours import write_dual
from .predict import Recognizer
from .predictions import predictions_of, to_csv


@dataclass(frozen=True)
class Trained:
    """The finished run of one preset."""

    preset: str
    folder: Path
    metrics: RunMetrics
    predictions: list[Prediction]


# With its scorer, what is known of that, seconds, and the dual of the scorer where it has one.
_Scored = tuple[BCNN, FittedClassifier, dict[str, float], Tensor | None]


def finish(
    preset: str,
    folder: Path,
    config: RunConfig,
    dataset: Dataset,
    model: BCNN,
    descriptors: Descriptors,
    progress: Progress,
    finetuned: FineTuned | None = None,
) -> Trained:
    """Fit the classifier of one preset, evaluate it, and write everything to the run folder.

    A network that comes with a scorer was trained with it, and keeps it: no classifier is fitted then.
    """
    scored = _trained(model) if model.scorer is not None else _fitted(preset, config, model, descriptors, progress)
    whole, about, time_s, beta = scored
    tested, rows = test(whole, descriptors), descriptors.matrix(TEST).rows
    names = [descriptors.entries[row].name for row in rows]
    predictions = predictions_of(tested.scores / about.temperature, names, dataset.classes, tested.labels)
    evaluation = tested.evaluation(about.temperature)
    metrics = RunMetrics(
        preset=preset,
        dataset=dataset.name,
        listing=descriptors.config.listing,
        images=descriptors.content,
        num_classes=len(dataset.classes),
        broken=descriptors.broken,
        backbone=model.config.backbone,
        image_size=model.preprocessing.size,
        descriptor_length=model.descriptor_length,
        seed=config.seed,
        config=configs.to_plain(config),
        versions=machine.facts(),
        finetune=finetuned,
        num_train=len(descriptors.matrix(TRAIN).rows),
        test=measured(evaluation, dataset.classes) if evaluation else None,
        classifier=about,
        time_s={"describe": descriptors.time_s, **time_s},
    )
    notes = Notes(
        classes=dataset.classes,
        temperature=about.temperature,
        calibrated=about.calibrated,
        flips=config.flips,
        precision=config.precision,
        dataset=dataset.name,
        accuracy=evaluation.accuracy if evaluation else None,
        config=metrics.config,
    )
    save(whole, folder / MODEL, notes=asdict(notes))
    if beta is not None:
        write_dual(folder, descriptors, beta)
    seer = Recognizer(whole.to(config.extraction.device), dataset.classes, about.temperature, config.extraction)
    write_results(folder, metrics, predictions, evaluation, dataset, seer)
    return Trained(preset, folder, metrics, predictions)


def _fitted(preset: str, config: RunConfig, model: BCNN, descriptors: Descriptors, progress: Progress) -> _Scored:
    """The scorer from a linear classifier on the descriptors."""
    classes = descriptors.classes
    start = time.perf_counter()
    fitted = fit_rows(
        descriptors.matrix(TRAIN),
        len(classes),
        kind=config.classifier,
        C=config.C,
        rescale=config.rescale,
        seed=config.seed,
        progress=within(progress, f"{preset}: "),
    )
    spent = {"fit": time.perf_counter() - start, **{f"fit: {stage}": s for stage, s in fitted.time_s.items()}}
    about = read_as(FittedClassifier, {**vars(fitted), "untrained": [classes[i] for i in fitted.absent]})
    rows = descriptors.matrix(TRAIN).parts()
    whole = with_scorer(model, len(classes), fitted.weight, fitted.bias, rows)
    scorer: Any = whole.scorer
    return whole, about, spent, fitted.beta if scorer.is_linear else None


def _trained(model: BCNN) -> _Scored:
    """The scorer that the network was trained with, which no linear classifier can take the place of."""
    about = FittedClassifier(
        kind=model.config.scorer, C=None, converged=True, gap=None, num_iters=None, temperature=1.0,
        calibrated=False, cv_accuracy=None,
    )  # fmt: skip
    return model, about, {"fit": 0.0}, None


@torch.inference_mode()
def test(model: BCNN, descriptors: Descriptors) -> Tested:
    """What a network's own scorer says of the test images, from their descriptors."""
    scorer: Any = model.scorer

    def score(rows: DescriptorRows) -> Tensor:
        if scorer.is_linear:
            return linear_scores(rows, scorer.weight.detach().cpu(), scorer.bias.detach().cpu())
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        return torch.cat([model.score(part.to(device)).double().cpu() for part in rows.parts()])

    return score_rows(descriptors.matrix(TEST), score, len(descriptors.classes))


def measured(evaluation: Evaluation, classes: tuple[str, ...]) -> Measured:
    """The measurements, with the accuracy of every class under its name."""
    rows = zip(classes, evaluation.per_class, evaluation.counts, strict=True)
    per_class = {name: {"accuracy": share, "num_test": count} for name, share, count in rows}
    own = {"interval95": evaluation.interval, "num_test": evaluation.num_images, "per_class": per_class}
    return read_as(Measured, {**vars(evaluation), **own})


def write_results(
    folder: Path,
    metrics: RunMetrics | EvaluationMetrics,
    predictions: list[Prediction],
    evaluation: Evaluation | None,
    dataset: Dataset,
    recognizer: Recognizer,
) -> None:
    """Write metrics.json, predictions.csv and, where there are test images, the pictures."""
    with written_whole(folder / "predictions.csv") as temporary:
        temporary.write_text(to_csv(predictions), encoding="utf-8")
    if evaluation is not None:
        pictures.plot_confusion(evaluation.confusion.numpy(), dataset.classes, folder / "confusion.png")
        samples = {sample.name: sample for sample in dataset.samples}
        marks = partial(marks_of, recognizer, samples)
        pictures.plot_mistakes(predictions, samples, folder / "mistakes.png", marks=marks)
    with written_whole(folder / METRICS) as temporary:
        temporary.write_text(json.dumps(metrics.to_json(), indent=1) + "\n")
