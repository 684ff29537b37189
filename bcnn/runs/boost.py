r"""Boosting of networks: every round is a network for what those before it get wrong; the result is an ensemble.

.. math:: f = \sum_t \nu \alpha_t g_t

Reference: Moghimi et al., "Boosted convolutional neural networks", BMVC 2016; the mathematics is in `classify.boost`.

Without fine-tuning g_t is linear in the descriptors of the network at one size of the images, so that all rounds of a
size add up to one linear classifier: the ensemble has a member per size. With fine-tuning every round trains a whole
network by least squares, beginning with the pre-trained one and the learner on its descriptors. No images are held out
then: a round ends with its last epoch. Both views of a training image count, as for the other classifiers.

A run folder holds, besides what `runs.train` writes, boost.csv (a line per round) and rounds/: one file per round, and
the networks where they are trained. The same command goes on after the last round that is there.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from .. import machine
from ..classify.boost import Learner, LeastSquares, margins, risk, step_length, weights
from ..classify.evaluate import score_rows
from ..classify.gram import combine, gram
from ..classify.gram import scores as linear_scores
from ..data.contract import TEST, TRAIN, Dataset
from ..data.spec import load_dataset
from ..descriptors.extract import Extracted, extract
from ..descriptors.folder import DescriptorRows, Descriptors
from ..descriptors.team import Team
from ..files import read_tensors, write_csv, write_tensors
from ..finetune.checkpoint import BEST, LAST
from ..finetune.loop import Task
from ..finetune.loop import finetune as descend
from ..finetune.plan import Item
from ..finetune.source import Pixels
from ..finetune.step import Images
from ..metrics import MODEL, FittedClassifier, Notes, RunMetrics
from ..models.bcnn import BCNN, with_scorer
from ..models.ensemble import Ensemble
from ..models.files import load, save
from ..progress import Progress, silent, within
from . import config as configs
from .config import RunConfig
from .finish import Trained, measured, write_results
from .networks import networks
from .place import held
from .predict import Recognizer
from .predictions import predictions_of
from .train import MAY_HOLD, check_trainable, claim, fit_all

if TYPE_CHECKING:
    from lightning_fabric import Fabric

STAGE = "boosting, rounds"


@dataclass(frozen=True)
class Round:
    """What a round came to."""

    number: int  # from 1
    size: int  # of the images
    alpha: float  # before shrinkage
    risk: float  # per row, of the sum with this round
    error: float  # the share of training rows that the sum gets wrong
    time_s: float


@dataclass(frozen=True)
class _View:
    """The network at one size of the images, before fine-tuning, and its descriptors."""

    model: BCNN
    descriptors: Descriptors

    @property
    def train(self) -> DescriptorRows:
        return self.descriptors.matrix(TRAIN)


def boost(
    config: RunConfig, out: Path, fabric: Fabric | None = None, *, progress: Progress = silent, **report: Any
) -> tuple[list[Trained], Extracted]:
    """Boost for as many rounds as the configuration says, evaluate, and write it all down.

    Args:
        config: with `boost`, and with `finetune` where networks are to be trained.
        out: the run folder; one of another configuration is refused.
        fabric: from `finetune.engine.start`; needed with `finetune`.
        progress: hears of every stage.
        **report: passed to `build_model`, for the download of weights.
    """
    assert config.boost is not None
    _check_alone(config)
    dataset = load_dataset(config.spec)
    check_trainable(dataset, config.spec)
    with held(out, "train", may_hold=MAY_HOLD):
        claim(config, dataset, out, begun=("rounds/001.safetensors",))
        views, done = _views(config, dataset, out, progress, report)
        work = _Boosting(config, dataset, out, views, fabric, progress)
        work.run()
        return [work.finish()], done


def _check_alone(config: RunConfig) -> None:
    devices = 1 if config.finetune is None else config.finetune.devices * config.finetune.nodes
    if int(os.environ.get("WORLD_SIZE", "1")) * devices > 1:
        raise ValueError("train: expected one process with boost, whose rounds follow each other, got several.")


def _views(
    config: RunConfig, dataset: Dataset, out: Path, progress: Progress, report: dict[str, Any]
) -> tuple[dict[int, _View], Extracted]:
    """The network and the descriptors of every size."""
    root = Path(config.descriptors) if config.descriptors else out / "descriptors"
    views: dict[int, _View] = {}
    done = Extracted(0, 0, {})
    (preset,) = config.preset
    for size in config.boost_size or (config.size,):
        own = replace(config, size=size)
        model = networks(own, dataset, **report)[preset]
        place = root if len(config.boost_size) < 2 else root / f"size{size}"
        fit_all({preset: model}, dataset.of(TRAIN), place, config.extraction, team=Team(), progress=progress)
        stage = f"describing images of {model.preprocessing.size} pixels"
        done = extract(dataset, {place: model}, config.extraction, progress=progress, stage=stage)
        views[model.preprocessing.size] = _View(model, Descriptors(place))
    return views, done


class _Boosting:
    """The rounds of one run, those of earlier sessions among them."""

    def __init__(
        self,
        config: RunConfig,
        dataset: Dataset,
        out: Path,
        views: dict[int, _View],
        fabric: Fabric | None,
        progress: Progress,
    ):
        self.config, self.dataset, self.out, self.views = config, dataset, out, views
        self.fabric, self.progress = fabric, progress
        self.sizes = list(views)
        self.first = next(iter(views.values()))
        rows = self.first.train
        self.rows, self.labels = rows.rows, rows.labels
        self.images = self.first.descriptors.content
        self.num_classes = len(dataset.classes)
        self.f = torch.zeros(len(self.labels), self.num_classes, dtype=torch.float64)
        self.rounds: list[Round] = []
        self.solvers: dict[int, LeastSquares] = {}

    def run(self) -> None:
        """All rounds that are not there yet; it ends early where no learner helps any more."""
        assert self.config.boost is not None
        for number in range(1, self.config.boost + 1):
            size = self.sizes[(number - 1) % len(self.sizes)]
            g, alpha, time_s = self._read(number) or self._one(number, size)
            if alpha == 0:
                break
            self.f += self.config.shrinkage * alpha * g
            per_row = risk(self.f, self.labels) / len(self.labels)
            wrong = margins(self.f, self.labels).scatter(1, self.labels[:, None], 1.0).amin(1) <= 0
            self.rounds.append(Round(number, size, alpha, per_row, float(wrong.double().mean()), time_s))
            note = f"risk {per_row:.4g} per training row, {100 * self.rounds[-1].error:.1f} % wrong"
            self.progress(STAGE, number, self.config.boost, note)
        write_csv(self.out / "boost.csv", [asdict(one) for one in self.rounds])

    # --- a round ------------------------------------------------------------------------------------------------------

    def _one(self, number: int, size: int) -> tuple[Tensor, float, float]:
        """Fit a learner, train it where that is wanted, and write it down; returns its scores and its weight."""
        begin = time.perf_counter()
        w = weights(self.f, self.labels)
        size_of_w = w.gather(1, self.labels[:, None]).abs().mean()  # targets of size 1: alpha makes up for it exactly
        targets = -w / size_of_w
        learner = self._solver(size).fit(targets)
        if self.config.finetune is None:
            tensors = {"beta": learner.beta, "bias": learner.bias, "g": learner.g}
        else:
            g, test = self._tune(number, size, learner, targets)
            tensors = {"g": g, "test": test}
        alpha = step_length(self.f, tensors["g"], self.labels)
        spent = time.perf_counter() - begin
        told = {"number": number, "size": size, "alpha": alpha, "time_s": spent, "images": self.images}
        about = {"round": json.dumps(told)}
        remedy = "The rounds before it are whole; make room and give the same command again."
        write_tensors(self._path(number), tensors, about, who="boost", remedy=remedy)
        return tensors["g"], alpha, spent

    def _read(self, number: int) -> tuple[Tensor, float, float] | None:
        """The same of a round of an earlier session, if it is there."""
        try:
            tensors, header = read_tensors(self._path(number))
            about, g = json.loads(header["round"]), tensors["g"]
        except (OSError, SafetensorError, KeyError, ValueError):
            return None
        if about.get("images", self.images) != self.images:  # earlier versions did not note them
            raise ValueError(
                f"{self._path(number)}: expected a round on these images, got one on some which have changed since; "
                "choose another --out."
            )
        return (g, float(about["alpha"]), float(about["time_s"])) if g.shape == self.f.shape else None

    def _path(self, number: int) -> Path:
        return self.out / "rounds" / f"{number:03d}.safetensors"

    def _tensor(self, number: int, name: str) -> Tensor:
        result: Tensor = read_tensors(self._path(number))[0][name]
        return result

    def _solver(self, size: int) -> LeastSquares:
        if size not in self.solvers:
            rows = self.views[size].train
            if rows.rows != self.rows:
                raise ValueError("boost: expected the same images at every size, got others; were some just changed?")
            own = within(self.progress, f"{size} pixels: ")
            self.solvers[size] = LeastSquares(gram(rows, own), self.config.C)
        return self.solvers[size]

    def _tune(self, number: int, size: int, learner: Learner, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Train a whole network towards the targets; returns its scores of the training and of the test rows."""
        config, tuning, view = self.config, self.config.finetune, self.views[size]
        assert tuning is not None
        assert self.fabric is not None
        folder = self._path(number).with_suffix("")
        weight = combine(view.train, learner.beta)
        start = with_scorer(copy.deepcopy(view.model), self.num_classes, weight, learner.bias.float())
        if tuning.freeze_until is not None:
            start.freeze_until(tuning.freeze_until)
        places = {view.descriptors.entries[row].name: i for i, row in enumerate(self.rows)}
        samples = [sample for sample in self.dataset.of(TRAIN) if sample.name in places]
        first = [places[sample.name] for sample in samples]
        num_views = view.train.num_views

        def squares(scores: Tensor, items: Sequence[Item]) -> Tensor:
            rows = [first[image] * num_views + int(mirrored) for image, mirrored in items]
            return (scores - targets[rows].to(scores)).square().sum()

        source = Pixels(samples, start.preprocessing, config.extraction, tuning.memory_gb)
        task = Task(
            model=start,
            start=None,
            train=Images(samples, source, squares),
            held_out=None,
            config=tuning,
            flips=config.flips,
            seed=config.seed + number,
            batch=config.batch,
            folder=folder,
            identity={
                **config.result_part(),
                "round": number,
                "content": self.images,
                "images": view.descriptors.config.listing,
            },
        )
        within_round = within(self.progress, f"round {number}: ")
        descend(task, self.fabric, progress=within_round)
        place = folder / "descriptors"
        stage = "describing with the tuned network, images"
        extract(self.dataset, {place: with_scorer(start, None)}, config.extraction, progress=within_round, stage=stage)
        tuned = Descriptors(place)
        scores = [_linear(start, tuned.matrix(split)) for split in (TRAIN, TEST)]
        shutil.rmtree(place)
        (folder / LAST).unlink(missing_ok=True)
        return scores[0], scores[1]

    # --- afterwards ---------------------------------------------------------------------------------------------------

    def finish(self) -> Trained:
        """Join the rounds to an ensemble, evaluate it, and write everything to the run folder."""
        if not self.rounds:
            raise ValueError("boost: expected a learner that is better than nothing, got none in the first round.")
        begin = time.perf_counter()
        members, shares, parts = self._tuned() if self.config.finetune else self._frozen()
        ensemble = Ensemble(members, shares)
        tests = self.first.descriptors.matrix(TEST)
        total = torch.stack(parts).sum(0)
        tested = score_rows(tests, lambda _: total, self.num_classes)
        evaluation = tested.evaluation()
        config, descriptors, dataset = self.config, self.first.descriptors, self.dataset
        names = [descriptors.entries[row].name for row in tests.rows]
        predictions = predictions_of(tested.scores, names, dataset.classes, tested.labels)
        about = FittedClassifier(
            kind=f"boost(rounds={len(self.rounds)}, shrinkage={config.shrinkage:g})", C=config.C,
            converged=True, gap=None, num_iters=len(self.rounds), temperature=1.0, calibrated=False, cv_accuracy=None,
        )  # fmt: skip
        metrics = RunMetrics(
            preset=config.preset[0],
            dataset=dataset.name,
            listing=descriptors.config.listing,
            images=self.images,
            num_classes=self.num_classes,
            broken=descriptors.broken,
            backbone=self.first.model.config.backbone,
            image_size=max(self.sizes),
            descriptor_length=sum(view.model.descriptor_length for view in self.views.values()),
            seed=config.seed,
            config=configs.to_plain(config),
            versions=machine.facts(),
            num_train=len(self.rows),
            test=measured(evaluation, dataset.classes) if evaluation else None,
            classifier=about,
            time_s={
                "describe": sum(view.descriptors.time_s for view in self.views.values()),
                "fit": sum(one.time_s for one in self.rounds) + time.perf_counter() - begin,
            },
        )
        notes = Notes(
            classes=dataset.classes,
            flips=config.flips,
            precision=config.precision,
            dataset=dataset.name,
            accuracy=evaluation.accuracy if evaluation else None,
            config=metrics.config,
        )
        save(ensemble, self.out / MODEL, notes=asdict(notes))
        seer = Recognizer(ensemble.to(config.extraction.device), dataset.classes, notes.temperature, config.extraction)
        write_results(self.out, metrics, predictions, evaluation, dataset, seer)
        return Trained(metrics.preset, self.out, metrics, predictions)

    def _share(self, one: Round) -> float:
        return self.config.shrinkage * one.alpha

    def _frozen(self) -> tuple[list[BCNN], list[float], list[Tensor]]:
        """A member per size: the mean of its learners, by their shares; and what it says of test rows."""
        members, shares, parts = [], [], []
        for size in dict.fromkeys(one.size for one in self.rounds):
            own = [one for one in self.rounds if one.size == size]
            share = sum(map(self._share, own))
            beta = sum((self._share(one) / share * self._tensor(one.number, "beta") for one in own), torch.tensor(0.0))
            bias = sum((self._share(one) / share * self._tensor(one.number, "bias") for one in own), torch.tensor(0.0))
            view = self.views[size]
            weight = combine(view.train, beta)
            members.append(with_scorer(view.model, self.num_classes, weight, bias.float()))
            shares.append(share)
            parts.append(share * _linear(members[-1], view.descriptors.matrix(TEST)))
        return members, shares, parts

    def _tuned(self) -> tuple[list[BCNN], list[float], list[Tensor]]:
        """A member per round."""
        members = [load(self._path(one.number).with_suffix("") / BEST) for one in self.rounds]
        shares = [self._share(one) for one in self.rounds]
        parts = [self._share(one) * self._tensor(one.number, "test") for one in self.rounds]
        return members, shares, parts


def _linear(model: BCNN, rows: DescriptorRows) -> Tensor:
    """What a network's linear scorer says of descriptors, float64, shape (n, k)."""
    scorer: Any = model.scorer
    if not len(rows.labels):
        return torch.zeros(0, scorer.num_classes, dtype=torch.float64)
    return linear_scores(rows, scorer.weight.detach().cpu(), scorer.bias.detach().cpu())
