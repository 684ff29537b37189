"""What there is to do, what is done already, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import EXPERIMENTS
from .gauge import Gauge
from .jobs import Job, before
from .jobs.source import Source
from .jobs.tuned import Tuned
from .records import Subject
from .results import Results
from .workshop import Workshop


@dataclass(frozen=True)
class Step:
    """One thing to do: descriptors to describe, or a job."""

    name: str
    seconds: float
    job: Job[Any] | None = None
    source: Source | None = None
    poolings: tuple[str, ...] = ()
    num_images: int = 0  # to describe


@dataclass(frozen=True)
class Share:
    """The part of the plan that one artifact needs."""

    artifact: str
    num_cells: int
    num_done: int
    num_todo: int  # what needs fine-tuning, where that is not wanted, is neither
    seconds: float  # of what is left; jobs of several artifacts count in each


@dataclass(frozen=True)
class Plan:
    """The steps in order, and what they are for."""

    steps: tuple[Step, ...]
    shares: tuple[Share, ...]
    num_left_out: int = 0  # cells that need fine-tuning, where that is not wanted

    @property
    def seconds(self) -> float:
        """How long all steps will take."""
        return sum(step.seconds for step in self.steps)


def make_plan(
    artifacts: Sequence[str], subjects: Sequence[Subject], results: Results, shop: Workshop, *, finetune: bool = True
) -> Plan:
    """Jobs of all artifacts once each, grouped so that descriptors of one network are in use at a time.

    Without `finetune` no network is fine-tuned; results of earlier runs that are found count nevertheless.
    """
    gauge = Gauge(shop)
    asked = {name: [job for own in subjects for job in EXPERIMENTS[name].jobs(own)] for name in artifacts}
    wanted = {name: list(dict.fromkeys(jobs)) for name, jobs in asked.items()}
    every = list(dict.fromkeys(job for jobs in wanted.values() for job in jobs))
    possible = [job for job in every if finetune or _is_possible(job, results, shop)]
    missing = [job for job in possible if job not in results]
    again = [own for job in missing for own in before(job) if not results.failure(own) and not _is_run(own, shop)]
    todo = list(dict.fromkeys([*missing, *again]))  # the latter are gone, although their results are there
    seconds = {job: 0.0 if _is_run(job, shop) else job.seconds(gauge) for job in todo}
    lost = [job for job in todo if any(map(results.failure, before(job)))]
    steps = [Step(job.name, seconds[job], job=job) for job in todo if not job.sources or job in lost]
    able = [job for job in todo if job not in lost]
    for source, poolings in _sources(able).items():
        steps.append(_describing(source, poolings, shop, gauge))
        own = [job for job in able if source in (taken for taken, _ in job.sources)]
        steps += [Step(job.name, seconds[job], job=job) for job in own]
    shares = [_share(name, jobs, seconds, results) for name, jobs in wanted.items()]
    return Plan(tuple(steps), tuple(shares), len(every) - len(possible))


def _is_possible(job: Job[Any], results: Results, shop: Workshop) -> bool:
    """Whether it can be done without fine-tuning: no network is tuned for it, or that is done."""
    if job in results or isinstance(job, Tuned):
        return job in results or _is_run(job, shop)
    return all(_is_run(own, shop) or results.failure(own) for own in before(job))


def _is_run(job: Job[Any], shop: Workshop) -> bool:
    """Whether it is a fine-tuning whose run is there and has to be read only."""
    return isinstance(job, Tuned) and job.finished(shop) is not None


def _sources(jobs: Iterable[Job[Any]]) -> dict[Source, tuple[str, ...]]:
    """Descriptors that jobs take, with all poolings of a network together."""
    found: dict[Source, dict[str, None]] = {}
    for job in jobs:
        for source, pooling in job.sources:
            found.setdefault(source, {})[pooling] = None
    return {source: tuple(poolings) for source, poolings in found.items()}


def _describing(source: Source, poolings: tuple[str, ...], shop: Workshop, gauge: Gauge) -> Step:
    missing = source.num_missing(shop, poolings)
    seconds = source.num_views * missing * gauge.view(source.network, source.size).seconds
    return Step(f"describe images: {source.slug}", seconds, source=source, poolings=poolings, num_images=missing)


def _share(name: str, jobs: Sequence[Job[Any]], seconds: Mapping[Job[Any], float], results: Results) -> Share:
    done = sum(job in results for job in jobs)
    todo = [job for job in jobs if job in seconds]
    return Share(name, len(jobs), done, len(todo), sum(seconds[job] for job in todo))
