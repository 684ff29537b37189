"""Extraction, classifier, evaluation: from a dataset to a run folder.

Paper: Sec. 3.2, "Training and evaluation", without fine-tuning: one-vs-rest linear SVMs with C = 1 on frozen features,
predictions averaged over an image and its flipped copy. Training takes both views as well.

A run folder holds config.yaml, metrics.json, predictions.csv, model.safetensors, confusion.png, mistakes.png and the
descriptors in features/; with several presets, one such folder each and their comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import __version__, machine
from ..classify.accuracy import Evaluation, evaluate_scores
from ..classify.evaluate import fit_rows, score_rows
from ..classify.fit import LinearClassifier
from ..classify.gram import scores as linear_scores
from ..data.contract import TEST, TRAIN, Dataset, shown
from ..data.spec import load_dataset
from ..features.extract import Extracted, extract
from ..features.folder import Features, digest_of, listed
from ..features.team import Team
from ..files import written_whole
from ..models.bcnn import BCNN, with_classifier
from ..models.files import save
from ..report import classes as pictures
from ..report import comparison
from . import config as configs
from .config import RunConfig
from .predictions import Prediction, predictions_of, write_predictions

Tick = Callable[[str, int, int], None]  # stage, done, in all


@dataclass(frozen=True)
class Trained:
    """One preset's run."""

    preset: str
    folder: Path
    metrics: dict[str, Any]
    predictions: list[Prediction]


def train(
    config: RunConfig,
    out: Path,
    *,
    team: Team | None = None,
    tick: Tick = lambda stage, done, total: None,
    **report: Any,
) -> tuple[list[Trained], Extracted]:
    """Describe, classify, evaluate, and write it all down; only the leader of a team does more than describe.

    Args:
        config: what to do.
        out: the run folder; one of another configuration is refused.
        team: the processes that share the work.
        tick: hears of progress.
        **report: passed to `build_model`, for the download of weights.
    """
    team = team or Team()
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    models = configs.networks(config, dataset, **report)
    team.lead(lambda: claim(config, dataset, out))
    root = Path(config.features) if config.features else out / "features"
    features, done = describe(config, dataset, models, root, team=team, tick=tick)
    if not team.leads:
        return [], done
    runs = []
    for preset, folder in configs.folders(out, config.preset).items():
        runs.append(finish(preset, folder, config, dataset, models[preset], Features(features[preset]), tick))
    if len(runs) > 1:
        comparison.write([run.metrics for run in runs], [run.predictions for run in runs], out)
    return runs, done


def describe(
    config: RunConfig, dataset: Dataset, models: Mapping[str, BCNN], root: Path, *, team: Team, tick: Tick
) -> tuple[dict[str, Path], Extracted]:
    """Features of every preset below `root`; returns their folders, and what came of it."""
    places = configs.folders(root, config.preset)
    done = extract(
        dataset,
        {places[preset]: model for preset, model in models.items()},
        config.extraction,
        team=team,
        tick=lambda count, total: tick("describing images", count, total),
    )
    return places, done


def check_trainable(dataset: Dataset, spec: str) -> None:
    trained = {sample.label for sample in dataset.of(TRAIN)}
    if not trained:
        raise ValueError(f"train: expected training images in {spec}, got none; see: bcnn datasets check.")
    untrained = sorted({sample.label for sample in dataset.of(TEST)} - trained)
    if untrained:
        raise ValueError(
            f"train: expected training images of every class that is tested, got {len(untrained)} classes without, "
            f"such as {shown(dataset.classes[untrained[0]])!r}."
        )


def claim(config: RunConfig, dataset: Dataset, out: Path, *, begun: tuple[str, ...] = ()) -> None:
    """Make the run folder, or make sure that results which are there are of the same run: none are lost.

    Args:
        config: the run.
        dataset: its images.
        out: the run folder.
        begun: names of files that make a run worth keeping besides metrics.json.
    """
    path = out / "config.yaml"
    places = (out, *sorted(out.glob("*/")))
    found = [place / name for name in ("metrics.json", *begun) for place in places if (place / name).exists()]
    if found and path.exists():
        stored, wanted = configs.from_plain(configs.read(path)).result_part(), config.result_part()
        if found[0].suffix == ".json":
            stored["images"] = json.loads(found[0].read_text()).get("listing")
            wanted["images"] = digest_of(listed(dataset), dataset.classes)
        differing = [name for name in {**stored, **wanted} if stored.get(name) != wanted.get(name)]
        if differing:
            name = differing[0]
            details = "others" if name == "images" else f"{stored.get(name)!r} instead of {wanted.get(name)!r}"
            raise ValueError(
                f"train: expected {out} to be new or a run of the same configuration, got one with {name} {details}; "
                "choose another --out (features can be shared: --features)."
            )
    try:
        out.mkdir(parents=True, exist_ok=True)
        configs.write(config, path)
    except OSError as error:
        raise OSError(f"train: expected to make the run folder {out}, got: {error}; choose another --out.") from None


def finish(
    preset: str,
    folder: Path,
    config: RunConfig,
    dataset: Dataset,
    model: BCNN,
    features: Features,
    tick: Tick,
    further: Callable[[Features], dict[str, Any]] = lambda features: {},
) -> Trained:
    """Classifier and evaluation of one preset; `further` gives what else there is to say of the features."""
    matrix = features.matrix(TRAIN)
    start = time.perf_counter()
    fitted = fit_rows(
        matrix,
        len(dataset.classes),
        kind=config.classifier,
        C=config.C,
        rescale=config.rescale,
        seed=config.seed,
        tick=lambda stage, done, total: tick(f"{preset}: {stage}", done, total),
    )
    fit_s = time.perf_counter() - start
    scores, names, labels = test_scores(features, fitted.weight, fitted.bias)
    predictions = predictions_of(scores / fitted.temperature, names, dataset.classes, labels)
    evaluation = evaluate_scores(scores / fitted.temperature, labels, len(dataset.classes)) if len(labels) else None
    metrics = {
        **_about(preset, config, dataset, features, model),
        **further(features),
        "num_train": len(matrix.rows),
        **evaluation_record(evaluation, dataset.classes),
        "classifier": _classifier_record(fitted, dataset.classes),
        "time_s": {"describe": features.time_s, "fit": fit_s, **{f"fit: {k}": v for k, v in fitted.time_s.items()}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save(
        with_classifier(model, fitted.weight, fitted.bias),
        folder / "model.safetensors",
        notes=_notes(config, dataset, fitted, metrics),
    )
    write_results(folder, metrics, predictions, evaluation, dataset)
    return Trained(preset, folder, metrics, predictions)


def test_scores(features: Features, weight: Tensor, bias: Tensor) -> tuple[Tensor, list[str], Tensor]:
    """Of a linear classifier, averaged over the views; names and labels of the images."""
    matrix = features.matrix(TEST)
    tested = score_rows(matrix, lambda own: linear_scores(own, weight, bias), len(bias))
    return tested.scores, [features.entries[row].name for row in matrix.rows], tested.labels


def write_results(
    folder: Path,
    metrics: dict[str, Any],
    predictions: list[Prediction],
    evaluation: Evaluation | None,
    dataset: Dataset,
) -> None:
    """metrics.json, predictions.csv and, where there was something to predict, the pictures."""
    write_predictions(predictions, folder / "predictions.csv")
    if evaluation is not None:
        pictures.plot_confusion(evaluation.confusion.numpy(), dataset.classes, folder / "confusion.png")
        pictures.plot_mistakes(predictions, {s.name: s for s in dataset.samples}, folder / "mistakes.png")
    with written_whole(folder / "metrics.json") as temporary:
        temporary.write_text(json.dumps(metrics, indent=1) + "\n")


def evaluation_record(evaluation: Evaluation | None, classes: tuple[str, ...]) -> dict[str, Any]:
    """The measurements as JSON."""
    if evaluation is None:
        return {"accuracy": None, "num_test": 0}
    per_class = {
        name: {"accuracy": share, "num_test": count}
        for name, share, count in zip(classes, evaluation.per_class, evaluation.counts, strict=True)
    }
    return {
        "accuracy": evaluation.accuracy,
        "interval95": list(evaluation.interval),
        "num_test": evaluation.num_images,
        "top5_accuracy": evaluation.top5_accuracy,
        "mean_class_accuracy": evaluation.mean_class_accuracy,
        "negative_log_likelihood": evaluation.negative_log_likelihood,
        "calibration_error": evaluation.calibration_error,
        "per_class": per_class,
    }


def _about(preset: str, config: RunConfig, dataset: Dataset, features: Features, model: BCNN) -> dict[str, Any]:
    return {
        "preset": preset,
        "dataset": dataset.name,
        "listing": features.config.listing,
        "images": features.content,
        "num_classes": len(dataset.classes),
        "broken": features.broken,
        "backbone": model.config.backbone,
        "image_size": model.config.preprocessing.size,
        "num_features": model.num_features,
        "seed": config.seed,
        "config": configs.to_plain(config),
        "versions": {**machine.describe(), "bcnn": __version__},
    }


def _classifier_record(fitted: LinearClassifier, classes: tuple[str, ...]) -> dict[str, Any]:
    names = ("kind", "C", "rescale", "converged", "gap", "num_iters", "temperature", "calibrated", "cv_accuracy")
    return {**{name: getattr(fitted, name) for name in names}, "untrained": [classes[i] for i in fitted.absent]}


def _notes(config: RunConfig, dataset: Dataset, fitted: LinearClassifier, metrics: dict[str, Any]) -> dict[str, Any]:
    """What prediction needs besides the network."""
    return {
        "classes": list(dataset.classes),
        "temperature": fitted.temperature,
        "calibrated": fitted.calibrated,
        "flips": config.flips,
        "precision": config.precision,
        "dataset": dataset.name,
        "accuracy": metrics["accuracy"],
        "config": configs.to_plain(config),
    }
