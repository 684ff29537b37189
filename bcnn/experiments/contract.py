"""What an experiment is: jobs on subjects, and the tables and figures made of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..report.document import Picture, Table
from .jobs import Job
from .records import Subject, Tested
from .results import Results
from .run_folder import TunedResult

Block = Table | Picture


@dataclass(frozen=True)
class Cell:
    """A row of an accuracy table: what it is called, what the paper prints, and which jobs measure it."""

    labels: tuple[str, ...]
    jobs: tuple[Job[Tested | TunedResult], ...]  # one per seed
    paper: float | None = None  # percent
    value: Literal["accuracy", "before"] = "accuracy"  # of the jobs' results
    part: str = ""  # rows of one part stand in one table; its first row is what gains are counted from


Cells = Callable[[Subject], Sequence[Cell]]
Jobs = Callable[[Subject], Sequence[Job[Any]]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper."""

    title: str
    about: str  # the module's docstring
    jobs: Jobs
    blocks: Callable[[Results, Sequence[Subject]], list[Block]]

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return self.about.strip().splitlines()[0]


def jobs_of(cells: Cells) -> Jobs:
    """All jobs that the cells of a table need."""
    return lambda subject: [job for cell in cells(subject) for job in cell.jobs]
