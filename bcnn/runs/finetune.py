"""Fine-tuning from a dataset to a run folder: logistic regression, the whole network, then SVMs in its place.

Paper: Sec. 3.2, "Training and evaluation", and 3.4. The epoch is chosen on images cut from the training split; the test
split is opened when all training is done, once by the network before fine-tuning and once by the one after it.

Besides what `runs.train` writes, the run folder holds last.safetensors and best.safetensors (checkpoints), steps.csv,
epochs.csv, curves.png, tensorboard/ and, if a step was not finite, nonfinite.csv.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..classify.evaluate import Tested, fit_and_test
from ..data.contract import TEST, TRAIN, Dataset, Sample
from ..data.spec import load_dataset
from ..descriptors.extract import Extracted, extract
from ..descriptors.fitting import unreadable
from ..descriptors.folder import Descriptors, content_of, listed
from ..descriptors.team import Team
from ..finetune import config as settings
from ..finetune.checkpoint import LAST, State
from ..finetune.config import FinetuneConfig
from ..finetune.initialise import initialise
from ..finetune.loop import Task
from ..finetune.loop import finetune as descend
from ..finetune.module import make_optimizer, memory_note
from ..finetune.plan import hold_out
from ..finetune.source import Pixels, Source, StoredMaps, store_maps
from ..finetune.step import Images
from ..metrics import METRICS, Accuracy, FineTuned
from ..metrics import read as read_metrics
from ..models.backbones.contract import Backbone
from ..models.bcnn import BCNN, with_scorer
from ..parts.fitting import parts_to_fit
from ..progress import Progress, silent, within
from ..report import curves
from ..report import finetune as report_finetune
from . import config as configs
from .config import RunConfig
from .finish import Trained, finish
from .finish import test as test_network
from .networks import networks
from .place import held
from .train import MAY_HOLD, check_readable, check_trainable, claim, extract_all, fit_all

if TYPE_CHECKING:
    from lightning_fabric import Fabric

TUNED, FROZEN = "tuned_descriptors", "frozen_maps"


@dataclass(frozen=True)
class _Run:
    """What the stages of one run share."""

    config: RunConfig
    tuning: FinetuneConfig
    dataset: Dataset
    root: Path  # of descriptors before fine-tuning
    fabric: Fabric
    team: Team
    progress: Progress

    def divided(self, broken: Container[str]) -> tuple[list[Sample], list[Sample]]:
        """Training images, and those of them that are held out to choose the epoch on."""
        good = [sample for sample in self.dataset.of(TRAIN) if sample.name not in broken]
        share = 0.0 if self.tuning.select_on == settings.TEST else self.tuning.val_share
        return hold_out(good, share, self.config.seed)

    def describe(self, models: Mapping[str, BCNN], split: str) -> tuple[dict[str, Descriptors], Extracted]:
        """Descriptors of one split before fine-tuning, of every preset."""
        part, stage = replace(self.dataset, samples=self.dataset.of(split)), f"describing {split} images"
        places, done = extract_all(
            self.config, part, models, self.root / split, team=self.team, progress=self.progress, stage=stage
        )
        return {preset: Descriptors(place) for preset, place in places.items()}, done


def finetune(
    config: RunConfig, out: Path, fabric: Fabric, *, team: Team, resume: bool = True, progress: Progress = silent
) -> tuple[list[Trained], Extracted]:
    """Everything, for every preset; what is done already is not done again.

    Args:
        config: with `finetune`.
        out: the run folder; one of another configuration is refused.
        fabric: from `finetune.engine.start`.
        team: the processes that share the work.
        resume: go on where an earlier session ended; else the training begins anew.
        progress: hears of every stage.
    """
    assert config.finetune is not None
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    places = configs.folders(out, config.preset)
    with ExitStack() as stack:
        team.lead(lambda: stack.enter_context(held(out, "train", may_hold=MAY_HOLD)))
        finished = team.lead(lambda: _claim(config, dataset, out, list(places.values()), resume=resume))
        if len(finished) == len(places):
            return _read_all(places, dataset, out, team)
        models = networks(config, dataset)
        for model in models.values():
            _try(model, config.finetune, len(dataset.classes))
        root = Path(config.descriptors) if config.descriptors else out / "descriptors"
        run = _Run(config, config.finetune, dataset, root, fabric, team, progress)
        _fit(run, models)
        frozen, done = run.describe(models, TRAIN)
        broken = done.broken
        check_readable(dataset.of(TRAIN), broken, "train: expected training")
        if config.finetune.select_on == settings.TEST:
            broken = broken | run.describe(models, TEST)[1].broken
        tuned = {
            preset: _train(run, preset, models[preset], frozen[preset], folder, broken, resume=resume)
            for preset, folder in places.items()
            if folder not in finished
        }
        tests, of_tests = run.describe(models, TEST)
        for preset, (model, state) in tuned.items():
            _finish(run, preset, model, state, places[preset], (frozen[preset], tests[preset]))
        team.wait()
        done = Extracted(len(dataset.samples), done.num_done + of_tests.num_done, done.broken | of_tests.broken)
        return _read_all(places, dataset, out, team)[0], done


def _fit(run: _Run, models: Mapping[str, BCNN]) -> None:
    """Fit parts that need data on training images that are not held out."""
    if any(map(parts_to_fit, models.values())):
        options = run.config.extraction
        broken = unreadable(run.dataset.of(TRAIN), next(iter(models.values())), options)
        fit_all(models, run.divided(broken)[0], run.root, options, team=run.team, progress=run.progress)


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
    finished = [place for place in places if (place / METRICS).exists()]
    seen = {read_metrics(place / METRICS).images for place in finished} - {""}  # earlier versions did not note them
    if seen and seen != {content_of(listed(dataset), dataset.classes)}:
        raise ValueError(
            f"train: expected the images that {out} was made from, got some that have changed since; choose another "
            "--out, or begin anew by --no-resume."
        )
    return finished


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
    run: _Run, preset: str, model: BCNN, stored: Descriptors, folder: Path, broken: Container[str], *, resume: bool
) -> tuple[BCNN, State]:
    """From the frozen network, whose descriptors are stored, to the best one."""
    config, tuning = run.config, run.tuning
    chosen, held_out = run.divided(broken)
    if tuning.select_on == settings.TEST:
        held_out = [sample for sample in run.dataset.of(TEST) if sample.name not in broken]
    progress = within(run.progress, f"{preset}: ")
    if resume and run.team.lead((folder / LAST).exists):  # it holds a scorer
        start = with_scorer(copy.deepcopy(model), len(run.dataset.classes))
    else:
        start = initialise(model, stored, {s.name for s in chosen}, c=tuning.init_c, team=run.team, progress=progress)
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
        identity={**config.result_part(), "preset": preset, **_images(stored, (*chosen, *held_out))},
    )
    return start, descend(task, run.fabric, resume=resume, progress=progress)


def _images(stored: Descriptors, samples: Sequence[Sample]) -> dict[str, str]:
    """What tells the images of a training from others."""
    return {"images": stored.config.listing, "content": content_of(samples, stored.classes)}


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


def _finish(
    run: _Run, preset: str, model: BCNN, state: State, folder: Path, frozen: tuple[Descriptors, Descriptors]
) -> None:
    """Describe with the tuned network, put SVMs in the place of a linear scorer, evaluate before and after.

    The descriptors of the network before are those of training and of test images.
    """
    bare = with_scorer(model, None)
    place = folder / TUNED
    progress = within(run.progress, f"{preset}: ")
    stage = "describing with the tuned network, images"
    extract(run.dataset, {place: bare}, run.config.extraction, team=run.team, progress=progress, stage=stage)
    if not run.team.leads:
        return
    descriptors = Descriptors(place)
    record = _record(run, model, state, _before(run, *frozen, progress), test_network(model, descriptors))
    curves.plot(state.history, state.best_epoch, folder / "curves.png", selected_on=record.selected_on)
    whole = bare if model.scorer.is_linear else model  # type: ignore[union-attr]
    finish(preset, folder, run.config, run.dataset, whole, descriptors, run.progress, record)


def _before(run: _Run, train: Descriptors, tests: Descriptors, progress: Progress) -> Tested:
    """What the same classifier makes of the network as it was."""
    done = fit_and_test(
        train.matrix(TRAIN), tests.matrix(TEST), len(run.dataset.classes),
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
