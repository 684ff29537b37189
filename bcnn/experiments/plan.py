"""What there is to do, what is done already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import EXPERIMENTS
from .contract import Subject
from .gauge import Gauge
from .jobs.frozen import Source
from .jobs.tuned import METRICS
from .results import Results
from .workshop import Workshop


@dataclass(frozen=True)
class Step:
    """One thing to do: features to describe, or a job."""

    name: str
    seconds: float
    job: Any = None
    source: Source | None = None
    poolings: tuple[str, ...] = ()
    num_images: int = 0  # to describe


@dataclass(frozen=True)
class Share:
    """What an artifact has to do with it."""

    artifact: str
    num_cells: int
    num_done: int
    num_todo: int  # what needs fine-tuning, where that is not wanted, is neither
    seconds: float  # of what is left; jobs of several artifacts count in each


@dataclass(frozen=True)
class Plan:
    """Steps in order, and what they are for."""

    steps: tuple[Step, ...]
    shares: tuple[Share, ...]
    num_left_out: int = 0  # cells that need fine-tuning, where that is not wanted

    @property
    def seconds(self) -> float:
        """In all."""
        return sum(step.seconds for step in self.steps)


def make_plan(
    artifacts: Sequence[str], subjects: Sequence[Subject], results: Results, shop: Workshop, *, finetune: bool = True
) -> Plan:
    """Jobs of all artifacts once each, grouped so that features of one network are in use at a time.

    Args:
        artifacts: names of `EXPERIMENTS`.
        subjects: what to do them on.
        results: what is there already.
        shop: data and features.
        finetune: whether networks are to be fine-tuned; if not, only results of earlier runs that are found count.
    """
    gauge = Gauge(shop)
    wanted = {name: _unique(EXPERIMENTS[name].jobs, subjects) for name in artifacts}
    every = list(dict.fromkeys(job for jobs in wanted.values() for job in jobs))
    possible = [job for job in every if finetune or _is_possible(job, results, shop)]
    missing = [job for job in possible if results.get(job) is None]
    again = [own for job in missing for own in job.before if not results.failure(own) and not _is_run(own, shop)]
    todo = list(dict.fromkeys([*again, *missing]))  # tuned networks that are gone, although their results are there
    seconds = {job: 0.0 if _is_run(job, shop) else job.seconds(gauge) for job in todo}
    lost = [job for job in todo if any(map(results.failure, job.before))]
    steps = [Step(job.name, seconds[job], job=job) for job in todo if not job.sources or job in lost]
    able = [job for job in todo if job not in lost]
    for source, poolings in _sources(able).items():
        own = [job for job in able if source in (taken for taken, _ in job.sources)]
        steps += _of_source(source, poolings, own, seconds, shop, gauge)
    shares = [_share(name, jobs, seconds, results) for name, jobs in wanted.items()]
    return Plan(tuple(steps), tuple(shares), len(every) - len(possible))


def _unique(jobs: Any, subjects: Iterable[Subject]) -> list[Any]:
    return list(dict.fromkeys(job for subject in subjects for job in jobs(subject)))


def _is_possible(job: Any, results: Results, shop: Workshop) -> bool:
    """Without fine-tuning: nothing is tuned for it, or that is done."""
    if job.kind == "tuned":
        return results.get(job) is not None or _is_run(job, shop)
    return results.get(job) is not None or all(_is_run(own, shop) or results.failure(own) for own in job.before)


def _is_run(job: Any, shop: Workshop) -> bool:
    """Whether a fine-tuned run is there, and has to be read only."""
    return job.kind == "tuned" and (job.folder(shop) / METRICS).exists()


def _sources(jobs: Iterable[Any]) -> dict[Source, tuple[str, ...]]:
    """Features that jobs take, with all poolings of a network together."""
    found: dict[Source, dict[str, None]] = {}
    for job in jobs:
        for source, pooling in job.sources:
            found.setdefault(source, {})[pooling] = None
    return {source: tuple(poolings) for source, poolings in found.items()}


def _of_source(
    source: Source,
    poolings: tuple[str, ...],
    jobs: Sequence[Any],
    seconds: Mapping[Any, float],
    shop: Workshop,
    gauge: Gauge,
) -> list[Step]:
    missing = shop.num_missing(source, poolings)
    view = gauge.view_s(source.network, source.size)
    first = Step(
        f"describe images: {source.slug}", 2 * missing * view, source=source, poolings=poolings, num_images=missing
    )
    return [first, *(Step(job.name, seconds[job], job=job) for job in jobs)]


def _share(name: str, jobs: Sequence[Any], seconds: Mapping[Any, float], results: Results) -> Share:
    done = sum(results.get(job) is not None for job in jobs)
    todo = [job for job in jobs if job in seconds]
    return Share(name, len(jobs), done, len(todo), sum(seconds[job] for job in todo))
