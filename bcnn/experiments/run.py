"""Carry out a plan, step by step; what is measured is on disk before the next step begins."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..data.contract import TEST, TRAIN, Dataset
from ..errors import NonFiniteTrainingError
from .contract import Subject
from .jobs.frozen import SCRATCH, Source
from .plan import Plan, Step
from .results import Results
from .workshop import Workshop

Heard = Callable[[float], None]  # seconds of the plan that are behind


@dataclass(frozen=True)
class Failure:
    """A step that could not be done."""

    name: str
    why: str


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """The folder to oneself: two at the same work would do it twice. What a killed process left behind is removed."""
    from filelock import FileLock, Timeout

    try:
        out.mkdir(parents=True, exist_ok=True)
        lock = FileLock(out / ".lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise OSError(
            f"reproduce: expected {out} to be free, got one that another bcnn reproduce is at work in; "
            "wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise OSError(f"reproduce: expected to make the folder {out}, got: {error}; choose another --out.") from None
    try:
        for left in out.glob(f"{SCRATCH}*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        lock.release()


def register(subjects: Sequence[Subject], results: Results, shop: Workshop) -> None:
    """Make known what is measured."""
    for subject in subjects:
        results.add_subject(subject, about_dataset(shop.dataset(subject.dataset)))


def about_dataset(dataset: Dataset) -> dict[str, Any]:
    """What tables say of it; no paths."""
    return {
        "classes": list(dataset.classes),
        "num_classes": len(dataset.classes),
        "num_images": len(dataset.samples),
        "num_train": len(dataset.of(TRAIN)),
        "num_test": len(dataset.of(TEST)),
    }


def carry_out(plan: Plan, results: Results, shop: Workshop, heard: Heard = lambda seconds: None) -> list[Failure]:
    """Do all steps; one that fails is reported at the end, and those that need it are left out.

    A training that diverges is a result: it is written down, with the reason.
    """
    failures: list[Failure] = []
    broken: set[Source] = set()  # without features
    behind = 0.0
    for step in plan.steps:
        heard(behind)
        if not _rests_on(step, broken):
            begin = time.perf_counter()
            try:
                result = _do(step, results, shop, partial(_within, heard, behind, step.seconds))
            except (ValueError, OSError, ArithmeticError, RuntimeError, MemoryError) as error:
                failures.append(Failure(step.name, str(error) or type(error).__name__))
                if step.source is not None:
                    broken.add(step.source)
            else:
                if result is not None:  # what cannot be written down need not be measured: no further step then
                    results.add(step.job, result, time.perf_counter() - begin)
        behind += step.seconds
    heard(behind)
    return failures


def _rests_on(step: Step, broken: set[Source]) -> bool:
    return step.job is not None and any(source in broken for source, _ in step.job.sources)


def _within(heard: Heard, behind: float, seconds: float, done: int, total: int) -> None:
    heard(behind + seconds * done / max(total, 1))


def _do(step: Step, results: Results, shop: Workshop, tick: Callable[[int, int], None]) -> dict[str, Any] | None:
    """The result of a job; of features there is none."""
    if step.source is not None:
        if step.source.tuned is None or not results.failure(step.source.tuned):
            shop.describe(step.source, step.poolings, tick=tick)
        return None
    lost = [first for first in step.job.before if results.failure(first)]
    try:
        return {"failed": f"so did {lost[0].name}"} if lost else dict(step.job.run(shop))
    except NonFiniteTrainingError as error:
        return {"failed": str(error)}
