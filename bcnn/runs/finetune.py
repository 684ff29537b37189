"""Fine-tuning from a dataset to a run folder: logistic regression, the whole network, then SVMs in its place.

Paper: Sec. 3.2, "Training and evaluation", and 3.4. The epoch is chosen on images cut from the training split; the test
split is opened when all training is done, once by the network before fine-tuning and once by the one after it.

Besides what `runs.train` writes, the run folder holds last.safetensors and best.safetensors (checkpoints), steps.csv,
epochs.csv, curves.png, tensorboard/ and, if a step was not finite, nonfinite.csv.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..classify.evaluate import Tested, fit_and_test
from ..data.contract import TEST, TRAIN, Dataset, Sample
from ..data.spec import load_dataset
from ..features.extract import Extracted, extract
from ..features.fitting import unreadable
from ..features.folder import Features
from ..features.team import Team
from ..metrics import METRICS, Accuracy, FineTuned
from ..metrics import read as read_metrics
from ..models.backbones.contract import Backbone
from ..models.bcnn import BCNN, with_scorer
from ..parts.fitting import parts_to_fit
from ..progress import Progress, silent, within
from ..report import curves
from ..report import finetune as report_finetune
from ..train import config as settings
from ..train.checkpoint import LAST, State
from ..train.config import FinetuneConfig
from ..train.initialise import initialise
from ..train.loop import Task
from ..train.loop import finetune as descend
from ..train.module import make_optimizer, memory_note
from ..train.plan import hold_out
from ..train.source import Pixels, Source, StoredMaps, store_maps
from ..train.step import Images
from . import config as configs
from .config import RunConfig
from .finish import Trained, finish
from .finish import test as test_network
from .networks import networks
from .train import check_trainable, claim, describe, fit_all

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TUNED, FROZEN = "tuned_features", "frozen_maps"


@dataclass(frozen=True)
class _Run:
    """What the stages of one run share."""

    config: RunConfig
    tuning: FinetuneConfig
    dataset: Dataset
    frozen: dict[str, Path]  # folders of each preset's descriptors before fine-tuning
    fabric: Fabric
    team: Team
    progress: Progress


def finetune(
    config: RunConfig,
    out: Path,
    fabric: Fabric,
    *,
    team: Team,
    resume: bool = True,
    progress: Progress = silent,
    tick: Progress | None = None,
    **report: Any,
) -> tuple[list[Trained], Extracted]:
    """Everything, for every preset; what is done already is not done again.

    Args:
        config: with `finetune`.
        out: the run folder; one of another configuration is refused.
        fabric: from `train.engine.start`.
        team: the processes that share the work.
        resume: go on where an earlier session ended; else the training begins anew.
        progress: hears of every stage.
        tick: the same under its old name.
        **report: passed to `build_model`, for the download of weights.
    """
    assert config.finetune is not None
    progress = tick or progress
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    places = configs.folders(out, config.preset)
    finished = team.lead(lambda: _claim(config, dataset, out, list(places.values()), resume=resume))
    if len(finished) == len(places):
        return _read_all(places, dataset, out, team)
    models = networks(config, dataset, **report)
    for model in models.values():
        _try(model, config.finetune, len(dataset.classes))
    root = Path(config.features) if config.features else out / "features"
    _fit(config, dataset, models, root, team, progress)

    def before(split: str) -> tuple[dict[str, Path], Extracted]:
        part, stage = replace(dataset, samples=dataset.of(split)), f"describing {split} images"
        return describe(config, part, models, root / split, team=team, progress=progress, stage=stage)

    frozen, done = before(TRAIN)
    broken = done.broken
    if config.finetune.select_on == settings.TEST:
        broken = broken | before(TEST)[1].broken
    run = _Run(config, config.finetune, dataset, frozen, fabric, team, progress)
    tuned = {
        preset: _train(run, preset, models[preset], folder, broken, resume=resume)
        for preset, folder in places.items()
        if folder not in finished
    }
    tests, of_tests = before(TEST)
    for preset, (model, state) in tuned.items():
        _finish(run, preset, model, state, places[preset], Features(tests[preset]))
    team.wait()
    done = Extracted(len(dataset.samples), done.num_done + of_tests.num_done, done.broken | of_tests.broken)
    runs, _ = _read_all(places, dataset, out, team)
    return runs, done


def _fit(
    config: RunConfig, dataset: Dataset, models: Mapping[str, BCNN], root: Path, team: Team, progress: Progress
) -> None:
    """Fit parts that need data on training images that are not held out."""
    assert config.finetune is not None
    if not any(map(parts_to_fit, models.values())):
        return
    samples = dataset.of(TRAIN)
    broken = unreadable(samples, next(iter(models.values())), config.extraction)
    chosen = _divided(config, [sample for sample in samples if sample.name not in broken])[0]
    fit_all(models, chosen, root, config.extraction, team=team, progress=progress)


def _divided(config: RunConfig, good: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Training images, and those of them that are held out to choose the epoch on."""
    assert config.finetune is not None
    if config.finetune.select_on == settings.TEST:
        return list(good), []
    return hold_out(good, config.finetune.val_share, config.seed)


def _try(model: BCNN, tuning: FinetuneConfig, num_classes: int) -> None:
    """Names of layers and parts are refused now, not after hours of describing."""
    trial = _frozen(with_scorer(copy.deepcopy(model), num_classes), tuning)
    if tuning.checkpoint_activations:
        for branch in trial.branches:
            branch.backbone.checkpoint_activations()  # type: ignore[operator, union-attr]
    make_optimizer(trial, tuning)


def _frozen(model: BCNN, tuning: FinetuneConfig) -> BCNN:
    """Freeze the layers up to the one that the configuration names."""
    return model if tuning.freeze_until is None else model.freeze_until(tuning.freeze_until)


def _claim(config: RunConfig, dataset: Dataset, out: Path, places: Sequence[Path], *, resume: bool) -> list[Path]:
    """Make sure that nothing of another run is lost; returns the folders in which all is done."""
    claim(config, dataset, out, begun=(LAST,) if resume else ())
    if not resume:
        for place in places:
            (place / METRICS).unlink(missing_ok=True)
            _remove_scratch(place)
    return [place for place in places if (place / METRICS).exists()]


def _remove_scratch(folder: Path) -> None:
    """What is of use only while the run is at work, and large."""
    for name in (TUNED, FROZEN):
        shutil.rmtree(folder / name, ignore_errors=True)


def _read_all(places: Mapping[str, Path], dataset: Dataset, out: Path, team: Team) -> tuple[list[Trained], Extracted]:
    """Runs that are finished, from their folders; their comparison is written, and what they no longer need removed."""
    runs = [Trained(preset, folder, read_metrics(folder / METRICS), []) for preset, folder in places.items()]
    done = Extracted(len(dataset.samples), 0, dict(runs[0].metrics.broken))
    if not team.leads:
        return [], done
    for folder in places.values():
        _remove_scratch(folder)
    if len(runs) > 1 and dataset.of(TEST):
        report_finetune.write([one.metrics for one in runs], out)
    return runs, done


# --- training ---------------------------------------------------------------------------------------------------------


def _train(
    run: _Run, preset: str, model: BCNN, folder: Path, broken: dict[str, str], *, resume: bool
) -> tuple[BCNN, State]:
    """From the frozen network to the best one."""
    config, tuning = run.config, run.tuning
    good = [sample for sample in run.dataset.of(TRAIN) if sample.name not in broken]
    chosen, held_out = _divided(config, good)
    if tuning.select_on == settings.TEST:
        held_out = [sample for sample in run.dataset.of(TEST) if sample.name not in broken]
    features, progress = Features(run.frozen[preset]), within(run.progress, f"{preset}: ")
    if resume and run.team.lead((folder / LAST).exists):  # it holds a scorer
        start = with_scorer(copy.deepcopy(model), len(run.dataset.classes))
    else:
        start = initialise(model, features, {s.name for s in chosen}, c=tuning.init_c, team=run.team, progress=progress)
    _frozen(start, tuning)
    layer, sources = _sources(run, start, (chosen, held_out), folder)
    task = Task(
        model=start,
        start=layer,
        train=Images(chosen, sources[0]),
        held_out=Images(held_out, sources[1]) if held_out else None,
        config=tuning,
        flips=config.flips,
        seed=config.seed,
        batch=config.batch,
        folder=folder,
        identity={**config.result_part(), "preset": preset, "images": features.config.listing},
    )
    return start, descend(task, run.fabric, resume=resume, progress=progress)


def _sources(
    run: _Run, model: BCNN, parts: Sequence[Sequence[Sample]], folder: Path
) -> tuple[str | None, list[Source]]:
    """Pictures, or the stored output of the frozen layers, and which layer that is."""
    tuning, options = run.tuning, run.config.extraction
    alone = len(model.branches) == 1 and model.front is None and isinstance(model.backbone, Backbone)
    if tuning.freeze_until is None or not tuning.cache_frozen or not alone:
        preprocessing = model.preprocessing
        total = max(1, sum(map(len, parts)))
        return None, [Pixels(p, preprocessing, options, tuning.memory_gb * len(p) / total) for p in parts]
    layer = tuning.freeze_until
    samples = tuple(sample for part in parts for sample in part)
    place = folder / FROZEN
    part = replace(run.dataset, samples=samples)
    shape = store_maps(model, part, layer, place, options, team=run.team, progress=run.progress)
    return layer, [StoredMaps(place, [s.name for s in part], shape, options.device) for part in parts]


# --- afterwards -------------------------------------------------------------------------------------------------------


def _finish(run: _Run, preset: str, model: BCNN, state: State, folder: Path, tests: Features) -> None:
    """Describe with the tuned network, put SVMs in the place of a linear scorer, evaluate before and after."""
    bare = with_scorer(model, None)
    place = folder / TUNED
    progress = within(run.progress, f"{preset}: ")
    stage = "describing with the tuned network, images"
    extract(run.dataset, {place: bare}, run.config.extraction, team=run.team, progress=progress, stage=stage)
    if not run.team.leads:
        return
    features = Features(place)
    record = _record(run, model, state, _before(run, preset, tests, progress), test_network(model, features))
    curves.plot(state.history, state.best_epoch, folder / "curves.png", selected_on=record.selected_on)
    whole = bare if model.scorer.is_linear else model  # type: ignore[union-attr]
    finish(preset, folder, run.config, run.dataset, whole, features, run.progress, record)


def _before(run: _Run, preset: str, tests: Features, progress: Progress) -> Tested:
    """What the same classifier makes of the network as it was."""
    done = fit_and_test(
        Features(run.frozen[preset]).matrix(TRAIN), tests.matrix(TEST), len(run.dataset.classes),
        kind=run.config.classifier, C=run.config.C, calibrate=False, rescale=run.config.rescale, seed=run.config.seed,
        progress=within(progress, "before fine-tuning, "),
    )  # fmt: skip
    return done.tested


def _record(run: _Run, model: BCNN, state: State, before: Tested, after: Tested) -> FineTuned:
    """How the training went, and the accuracies before and after it."""
    return FineTuned(
        epochs=run.tuning.epochs,
        selected_on=state.best.held_out or "nothing: last epoch",  # such as with one image per class
        best_epoch=state.best_epoch,
        best_val_accuracy=state.best.val_accuracy,
        num_skipped=len(state.nonfinite),
        num_gradient_exceptions=state.num_exceptions,
        nonfinite=state.nonfinite,
        num_sessions=state.num_sessions,
        num_processes=run.fabric.world_size,
        memory=memory_note(model),
        train_s=sum(epoch.time_s for epoch in state.history),
        wait_s=sum(epoch.wait_s for epoch in state.history),
        history=state.history,
        before=_accuracy(before),
        softmax=_accuracy(after),
    )


def _accuracy(tested: Tested) -> Accuracy:
    found = tested.evaluation()
    return Accuracy() if found is None else Accuracy(found.accuracy, found.interval)
