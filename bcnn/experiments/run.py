"""Carry out a plan, step by step; what is measured is on disk before the next step begins."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..data.contract import TEST, TRAIN
from ..errors import NonFiniteTrainingError
from ..progress import Progress
from ..runs.place import held
from .jobs import before
from .jobs.frozen import SCRATCH
from .jobs.source import Source
from .plan import Plan, Step
from .records import DatasetInfo, Failed, Outcome, Subject
from .results import FILE, Results
from .workshop import Workshop

# What earlier versions have written, which did not mark their folders.
MAY_HOLD = (FILE, "descriptors", "finetune", "report.html", "report.md", "report.tex")


@dataclass(frozen=True)
class Failure:
    """A step that failed, and why."""

    name: str
    why: str


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """The folder to oneself: two at the same work would do it twice. What a killed process left behind is removed."""
    with held(out, "reproduce", may_hold=MAY_HOLD):
        for left in out.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield


def register(subjects: Sequence[Subject], results: Results, shop: Workshop) -> None:
    """Tell the results which datasets and networks are measured."""
    for subject in subjects:
        dataset = shop.dataset(subject.dataset)
        about = DatasetInfo(
            classes=tuple(dataset.classes), num_classes=len(dataset.classes), num_images=len(dataset.samples),
            num_train=len(dataset.of(TRAIN)), num_test=len(dataset.of(TEST)),
            dataset=subject.dataset, images=subject.images,
        )  # fmt: skip
        results.add_subject(subject, about)


def carry_out(plan: Plan, results: Results, shop: Workshop, *, overall: str = "all steps, %") -> list[Failure]:
    """Do all steps; one that fails is reported at the end, and those that need it are left out.

    A training that diverges is a result: it is written down, with the reason.
    The stage `overall` of the shop's progress counts percent of the plan's seconds.
    """
    failures: list[Failure] = []
    broken: set[Source] = set()  # without descriptors
    behind = 0.0

    def tell(seconds: float) -> None:
        shop.progress(overall, int(100 * seconds / max(plan.seconds, 1e-9)), 100)

    def within(step: Step, stage: str, done: int, total: int, note: str = "") -> None:
        shop.progress(stage, done, total, note)
        tell(behind + step.seconds * done / max(total, 1))

    for step in plan.steps:
        tell(behind)
        if step.job is None or not any(source in broken for source, _ in step.job.sources):
            begin = time.perf_counter()
            try:
                outcome = _do(step, results, shop, partial(within, step))
            except (ValueError, OSError, ArithmeticError, RuntimeError, MemoryError) as error:
                failures.append(Failure(step.name, str(error) or type(error).__name__))
                if step.source is not None:
                    broken.add(step.source)
            else:
                if step.job is not None and outcome is not None:  # what cannot be written down ends all: no more steps
                    results.add(step.job, outcome, time.perf_counter() - begin)
        behind += step.seconds
    tell(behind)
    return failures


def _do(step: Step, results: Results, shop: Workshop, progress: Progress) -> Outcome[Any] | None:
    """What a job measured; descriptors are stored, and there is no outcome."""
    if step.source is not None and not (step.source.tuned and results.failure(step.source.tuned)):
        step.source.extract(shop, step.poolings, progress)
    if step.job is None:
        return None
    lost = [first for first in before(step.job) if results.failure(first)]
    try:
        return Outcome(Failed(f"so did {lost[0].name}")) if lost else step.job.run(shop)
    except NonFiniteTrainingError as error:
        return Outcome(Failed(str(error)))
