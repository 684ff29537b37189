"""Extraction, classifier, evaluation: from a dataset to a run folder.

Paper: Sec. 3.2, "Training and evaluation", without fine-tuning: one-vs-rest linear SVMs with C = 1 on frozen features,
predictions averaged over an image and its flipped copy. Training takes both views as well.

A run folder holds config.yaml, metrics.json, predictions.csv, model.safetensors, confusion.png, mistakes.png and the
descriptors in features/; with several presets, one such folder each and their comparison.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__, machine
from ..classify.accuracy import Evaluation
from ..classify.evaluate import Tested, fit_rows, score_rows
from ..classify.fit import LinearClassifier
from ..classify.gram import scores as linear_scores
from ..data.contract import TEST, TRAIN, Dataset, Sample, shown
from ..data.spec import load_dataset
from ..features.extract import Extracted, ExtractOptions, extract
from ..features.fitting import fit_or_read
from ..features.folder import FITTED, FeatureRows, Features, digest_of, listed
from ..features.team import Team
from ..files import written_whole
from ..models.bcnn import BCNN, with_scorer
from ..models.files import save
from ..progress import Progress, silent, within
from ..report import classes as pictures
from ..report import comparison
from ..scorers import SCORERS
from . import config as configs
from .config import RunConfig
from .networks import networks
from .predictions import Prediction, predictions_of, write_predictions


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
    progress: Progress = silent,
    **report: Any,
) -> tuple[list[Trained], Extracted]:
    """Describe, classify, evaluate, and write it all down; only the leader of a team does more than describe.

    Args:
        config: what to do.
        out: the run folder; one of another configuration is refused.
        team: the processes that share the work.
        progress: hears of every stage.
        **report: passed to `build_model`, for the download of weights.
    """
    team = team or Team()
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    check_scorer(config)
    models = networks(config, dataset, **report)
    team.lead(lambda: claim(config, dataset, out))
    root = Path(config.features) if config.features else out / "features"
    fit_all(models, dataset.of(TRAIN), root, config.extraction, team=team, progress=progress)
    features, done = describe(config, dataset, models, root, team=team, progress=progress)
    if not team.leads:
        return [], done
    runs = []
    for preset, folder in configs.folders(out, config.preset).items():
        runs.append(finish(preset, folder, config, dataset, models[preset], Features(features[preset]), progress))
    if len(runs) > 1:
        comparison.write([run.metrics for run in runs], [run.predictions for run in runs], out)
    return runs, done


def describe(
    config: RunConfig,
    dataset: Dataset,
    models: Mapping[str, BCNN],
    root: Path,
    *,
    team: Team,
    progress: Progress,
    stage: str = "describing images",
) -> tuple[dict[str, Path], Extracted]:
    """Describe all images with every preset; returns the presets' folders below `root`, and a summary."""
    places = configs.folders(root, config.preset)
    by_folder = {places[preset]: model for preset, model in models.items()}
    return places, extract(dataset, by_folder, config.extraction, team=team, progress=progress, stage=stage)


def fit_all(
    models: Mapping[str, BCNN],
    samples: Sequence[Sample],
    root: Path,
    options: ExtractOptions,
    *,
    team: Team,
    progress: Progress,
) -> None:
    """Fit the parts of all networks that need it; the leader of a team does so, the others read what it found."""
    places = configs.folders(root, tuple(models))
    for preset, model in models.items():

        def fit(preset: str = preset, model: BCNN = model) -> None:
            own = within(progress, f"{preset}: ")
            fit_or_read(model, samples, places[preset] / FITTED, options, progress=own)

        team.lead(fit)
        fit()


def check_scorer(config: RunConfig) -> None:
    """Without fine-tuning there is a linear classifier to start a scorer from, and nothing else."""
    scorer = SCORERS.read(config.scorer).name
    if not getattr(SCORERS[scorer].make, "can_start", False):
        raise ValueError(
            f"train: expected a scorer that a linear classifier can be turned into, got {scorer!r}; train the network "
            "with it by --finetune."
        )


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


@dataclass(frozen=True)
class _Decision:
    """A network with its scorer, how its scores become probabilities, and what there is to say of that."""

    model: BCNN
    temperature: float
    calibrated: bool
    record: dict[str, Any]
    time_s: dict[str, float]


def finish(
    preset: str,
    folder: Path,
    config: RunConfig,
    dataset: Dataset,
    model: BCNN,
    features: Features,
    progress: Progress,
    further: Callable[[Features], dict[str, Any]] = lambda features: {},
) -> Trained:
    """Classifier and evaluation of one preset.

    Args:
        preset: its name.
        folder: of its results.
        config: of the run.
        dataset: the images.
        model: without a scorer, or with one that was trained and is to stay.
        features: its descriptors.
        progress: hears of the classifier.
        further: gives what else there is to say of the descriptors.
    """
    decision = _trained(model) if model.scorer is not None else _fitted(preset, config, model, features, progress)
    tested, names = test(decision.model, features), names_of(features.matrix(TEST), features)
    predictions = predictions_of(tested.scores / decision.temperature, names, dataset.classes, tested.labels)
    evaluation = tested.evaluation(decision.temperature)
    metrics = {
        **_about(preset, config, dataset, features, model),
        **further(features),
        "num_train": len(features.matrix(TRAIN).rows),
        **evaluation_record(evaluation, dataset.classes),
        "classifier": decision.record,
        "time_s": {"describe": features.time_s, **decision.time_s},
    }
    folder.mkdir(parents=True, exist_ok=True)
    save(decision.model, folder / "model.safetensors", notes=_notes(config, dataset, decision, metrics))
    write_results(folder, metrics, predictions, evaluation, dataset)
    return Trained(preset, folder, metrics, predictions)


def _fitted(preset: str, config: RunConfig, model: BCNN, features: Features, progress: Progress) -> _Decision:
    """The scorer from a linear classifier on the descriptors."""
    matrix, classes = features.matrix(TRAIN), features.classes
    start = time.perf_counter()
    fitted = fit_rows(
        matrix,
        len(classes),
        kind=config.classifier,
        C=config.C,
        rescale=config.rescale,
        seed=config.seed,
        progress=within(progress, f"{preset}: "),
    )
    spent = {"fit": time.perf_counter() - start, **{f"fit: {stage}": s for stage, s in fitted.time_s.items()}}
    whole = with_scorer(model, len(classes), fitted.weight, fitted.bias)
    record = _classifier_record(fitted, classes)
    return _Decision(whole, fitted.temperature, fitted.calibrated, record, spent)


def _trained(model: BCNN) -> _Decision:
    """The scorer that the network was trained with, which no linear classifier can take the place of."""
    record: dict[str, Any] = dict.fromkeys(("C", "cv_accuracy", "gap", "num_iters"))
    record |= {"kind": model.config.scorer, "rescale": "none", "converged": True}
    record |= {"temperature": 1.0, "calibrated": False, "untrained": []}
    return _Decision(model, 1.0, False, record, {"fit": 0.0})


@torch.inference_mode()
def test(model: BCNN, features: Features) -> Tested:
    """What a network's own scorer says of the test images, from their descriptors."""
    scorer: Any = model.scorer

    def score(rows: FeatureRows) -> Tensor:
        if scorer.is_linear:
            return linear_scores(rows, scorer.weight.detach().cpu(), scorer.bias.detach().cpu())
        device = next((p.device for p in model.parameters()), torch.device("cpu"))
        return torch.cat([model.score(part.to(device)).double().cpu() for part in rows.parts()])

    return score_rows(features.matrix(TEST), score, len(features.classes))


def names_of(rows: FeatureRows, features: Features) -> list[str]:
    """Of the images whose rows they are."""
    return [features.entries[row].name for row in rows.rows]


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
        "image_size": model.preprocessing.size,
        "num_features": model.descriptor_length,
        "seed": config.seed,
        "config": configs.to_plain(config),
        "versions": {**machine.describe(), "bcnn": __version__},
    }


def _classifier_record(fitted: LinearClassifier, classes: tuple[str, ...]) -> dict[str, Any]:
    names = ("kind", "C", "rescale", "converged", "gap", "num_iters", "temperature", "calibrated", "cv_accuracy")
    return {**{name: getattr(fitted, name) for name in names}, "untrained": [classes[i] for i in fitted.absent]}


def _notes(config: RunConfig, dataset: Dataset, decision: _Decision, metrics: dict[str, Any]) -> dict[str, Any]:
    """What prediction needs besides the network."""
    return {
        "classes": list(dataset.classes),
        "temperature": decision.temperature,
        "calibrated": decision.calibrated,
        "flips": config.flips,
        "precision": config.precision,
        "dataset": dataset.name,
        "accuracy": metrics["accuracy"],
        "config": configs.to_plain(config),
    }
