"""What an experiment is: measurements on subjects, and the tables and figures made of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ..classify.rescale import RESCALES
from ..errors import unknown_name
from ..report.document import Picture, Table
from ..train.recipes import RECIPES

if TYPE_CHECKING:
    from .gauge import Gauge
    from .results import Results
    from .workshop import Workshop

Block = Table | Picture
RIDGES = ("ours", "paper")


@dataclass(frozen=True)
class Subject:
    """What experiments are done on: a dataset, a network, and how far to go."""

    dataset: str  # cub, cars, aircraft as in the paper, or any other name
    images: str  # digest of its images, names and content: results of others are others
    network: str
    weights: str = "default"  # what they are called
    parameters: str = ""  # digest of what they are
    size: int = 448  # of the images, for frozen networks
    tuned_size: int = 448
    epochs: int = 50
    seeds: tuple[int, ...] = (0,)
    dim: int = 512  # of matrices that are made up
    device: str = "cpu"  # for times
    threads: int = 1
    rescale: str = "none"  # of the SVMs, a name of `classify.rescale.RESCALES`
    ridge: str = "ours"  # or "paper": its ridge and its exact signed square root
    recipe: str = "ours"  # of fine-tuning, a name of `train.recipes.RECIPES`
    freeze_until: str | None = None  # layers that are not fine-tuned

    def __post_init__(self) -> None:
        for name, choices in (("rescale", RESCALES), ("ridge", RIDGES), ("recipe", RECIPES)):
            if getattr(self, name) not in choices:
                raise unknown_name("reproduce", name, getattr(self, name), choices)


def later(default: Any) -> Any:
    """A field that came later: where it has its default, jobs are stored without it, as they were before."""
    return field(default=default, metadata={"later": True})


class Job(Protocol):
    """One measurement: a frozen dataclass of plain data that says all its result depends on."""

    kind: ClassVar[str]

    @property
    def name(self) -> str:
        """In a few words, for the plan and the progress bar."""
        ...

    @property
    def sources(self) -> tuple[Any, ...]:
        """The stored features it takes: pairs of `jobs.frozen.Source` and the name of a pooling."""
        ...

    @property
    def before(self) -> tuple[Any, ...]:
        """Jobs that have to be done first."""
        ...

    def seconds(self, gauge: Gauge) -> float:
        """How long it will take, from measured samples; the features it takes not counted."""
        ...

    def run(self, shop: Workshop) -> dict[str, Any]:
        """The result, as JSON."""
        ...


def to_plain(job: Any) -> dict[str, Any]:
    """The job as JSON has it: what results are stored under."""
    return {"kind": job.kind, **_plain(job)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        own = {one: getattr(value, one.name) for one in fields(value)}
        return {one.name: _plain(v) for one, v in own.items() if not one.metadata.get("later") or v != one.default}
    return [_plain(own) for own in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True)
class Cell:
    """A row of an accuracy table: what it is called, what the paper prints, and which jobs measure it."""

    labels: tuple[str, ...]
    jobs: tuple[Any, ...]  # one a seed
    paper: float | None = None  # percent
    value: str = "accuracy"  # of the jobs' results
    part: str = ""  # rows of one part stand in one table; its first row is what gains are counted from


@dataclass(frozen=True)
class Experiment:
    """An artifact of the paper."""

    title: str
    about: str  # the module's docstring
    jobs: Callable[[Subject], Sequence[Any]]
    blocks: Callable[[Results, Sequence[Subject]], list[Block]]

    @property
    def summary(self) -> str:
        """The first line."""
        return self.about.strip().splitlines()[0]


def jobs_of(cells: Callable[[Subject], Sequence[Cell]]) -> Callable[[Subject], list[Any]]:
    """All jobs of the cells."""
    return lambda subject: [job for cell in cells(subject) for job in cell.jobs]
