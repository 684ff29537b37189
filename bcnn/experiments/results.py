"""Measurements in a file, one JSON line each, from which all tables and figures are made."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..files import MOST_TEXT, check_regular
from .jobs import JOBS, Job
from .plain import from_plain, to_plain
from .records import DatasetInfo, Failed, Outcome, Subject

FILE = "results.jsonl"
DATASET, SUBJECT, MEASUREMENT = "dataset", "subject", "measurement"
R = TypeVar("R")


@dataclass(frozen=True)
class Measurement(Generic[R]):
    """A job's result, with when, where and by which version it was measured."""

    job: Job[R]
    result: R | Failed
    time_s: float
    versions: dict[str, str]
    date: str
    commit: str | None = None


class Results:
    """What has been measured so far; each measurement is on disk before the next one starts.

    Args:
        path: the file; its folder is made with the first line. None: in memory only.
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self.datasets: dict[tuple[str, str], DatasetInfo] = {}  # by name and digest
        self.subjects: list[Subject] = []
        self.measurements: dict[Job[Any], Measurement[Any]] = {}
        for number, line in enumerate(_lines(path), 1):
            try:
                self._take(json.loads(line))
            except ValueError as error:
                raise ValueError(
                    f"{path}: expected one JSON object per line, as bcnn reproduce writes them, "
                    f"got in line {number}: {error}."
                ) from None

    def __contains__(self, job: Job[Any]) -> bool:
        """Whether a job was tried, and has a result or has failed."""
        return job in self.measurements

    def get(self, job: Job[R]) -> R | None:
        """The result of a job; None where it was not tried, or has failed."""
        own: Measurement[R] | None = self.measurements.get(job)
        return None if own is None or isinstance(own.result, Failed) else own.result

    def failure(self, job: Job[Any]) -> str | None:
        """Why a job that was tried has no numbers; None where it has them, or was not tried."""
        own = self.measurements.get(job)
        return own.result.failed if own is not None and isinstance(own.result, Failed) else None

    def add(self, job: Job[R], outcome: Outcome[R | Failed], time_s: float) -> None:
        """Write a measurement to the file."""
        line = {"what": MEASUREMENT, "job": job_to_plain(job), "result": to_plain(outcome.result)}
        line |= {"time_s": round(time_s, 2), "versions": outcome.versions, "commit": outcome.commit}
        self._append({**line, "date": datetime.now(timezone.utc).isoformat(timespec="seconds")})

    def add_subject(self, subject: Subject, about: DatasetInfo) -> None:
        """Make known what is measured, once each: with it, tables know which of their cells are missing."""
        if (about.dataset, about.images) not in self.datasets:
            self._append({"what": DATASET, **to_plain(about)})
        if subject not in self.subjects:
            self._append({"what": SUBJECT, **to_plain(subject)})

    def include(self, other: Results) -> None:
        """Take over what another file says; of a job that both have, numbers count before failures, then the later."""
        self.datasets |= other.datasets
        self.subjects += [subject for subject in other.subjects if subject not in self.subjects]
        for job, own in other.measurements.items():
            both = (self.measurements.get(job, own), own)
            self.measurements[job] = max(both, key=lambda one: (not isinstance(one.result, Failed), one.date))

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                file.truncate(whole := _whole_bytes(self.path))  # a killed process may have left half a line
                try:
                    file.write(json.dumps(line).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                except OSError as error:  # a full disk: half a line would spoil the next one
                    file.truncate(whole)
                    raise OSError(f"reproduce: expected to write to {self.path}, got: {error}; make room.") from None
        self._take(line)

    def _take(self, line: Any) -> None:
        if not isinstance(line, dict) or line.get("what") not in (DATASET, SUBJECT, MEASUREMENT):
            raise ValueError(f"no object that says what it is: {DATASET}, {SUBJECT} or {MEASUREMENT}")
        rest = {name: value for name, value in line.items() if name != "what"}
        if line["what"] == DATASET:
            about = from_plain(DatasetInfo, rest)
            self.datasets[about.dataset, about.images] = about
        elif line["what"] == SUBJECT:
            self.subjects.append(from_plain(Subject, rest))
        else:
            own = _measurement(rest)
            self.measurements[own.job] = own


def job_to_plain(job: Job[Any]) -> dict[str, Any]:
    """A job as plain data for JSON."""
    return {"kind": job.kind, **to_plain(job)}


def _measurement(content: dict[str, Any]) -> Measurement[Any]:
    """From JSON; which records its job and its result are, the kind of the job says."""
    job, result = content.get("job"), content.get("result")
    if not isinstance(job, dict) or job.get("kind") not in JOBS or not isinstance(result, dict):
        raise ValueError(f"no measurement with a job, of a kind among {', '.join(JOBS)}, and a result")
    kinds = JOBS[job["kind"]]
    plain = {name: value for name, value in job.items() if name != "kind"}
    own = {"job": from_plain(kinds[0], plain), "result": from_plain(Failed if "failed" in result else kinds[1], result)}
    measurement: Measurement[Any] = from_plain(Measurement, {**content, **own})
    return measurement


def _whole_bytes(path: Path) -> int:
    """The length of the file up to the end of its last complete line."""
    check_regular(path, MOST_TEXT)
    return path.read_bytes().rfind(b"\n") + 1


def _lines(path: Path | None) -> list[bytes]:
    """The lines, without what a killed process left unfinished at the end."""
    if path is None or not path.exists():
        return []
    whole = _whole_bytes(path)
    return path.read_bytes()[:whole].splitlines()
