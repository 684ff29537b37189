"""Measurements in a file, one JSON line each, from which all tables and figures are made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .. import __version__, machine
from ..files import from_json
from .contract import Subject, to_plain

FILE = "results.jsonl"
DATASET, SUBJECT, MEASUREMENT = "dataset", "subject", "measurement"


class Results:
    """What has been measured so far; each measurement is on disk before the next one starts.

    Args:
        path: the file; its folder is made with the first line. None: in memory only.
    """

    def __init__(self, path: Path | None = None):
        self.path = path
        self.datasets: dict[tuple[str, str], dict[str, Any]] = {}  # by name and digest
        self.subjects: list[Subject] = []
        self.lines: dict[str, dict[str, Any]] = {}  # measurements by job
        count = 0
        try:
            for line in _read(path) if path is not None else ():
                self._take(line)
                count += 1
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path}: expected one JSON object a line, as bcnn reproduce writes them, got in line {count + 1}: "
                f"{error!r}."
            ) from None

    def get(self, job: Any) -> dict[str, Any] | None:
        """The result of a job, if it is there."""
        line = self.lines.get(_key(to_plain(job)))
        return None if line is None else line["result"]

    def failure(self, job: Any) -> str | None:
        """Why a job that was tried has no numbers; None where it has them, or was not tried."""
        return (self.get(job) or {}).get("failed")

    def line(self, job: Any) -> dict[str, Any] | None:
        """The same with when, where and by which version it was measured."""
        return self.lines.get(_key(to_plain(job)))

    def add(self, job: Any, result: Mapping[str, Any], time_s: float) -> None:
        """Write a measurement down."""
        own = dict(result)
        versions = own.pop("versions", None) or {**machine.describe(), "bcnn": __version__}
        commit = own.pop("commit", machine.commit())
        self._append(
            {
                "what": MEASUREMENT, "job": to_plain(job), "result": own, "time_s": round(time_s, 2),
                "versions": versions, "commit": commit,
                "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            }
        )  # fmt: skip

    def add_subject(self, subject: Subject, about: Mapping[str, Any]) -> None:
        """Make known what is measured, once each: with it, tables know which of their cells are missing."""
        if (subject.dataset, subject.images) not in self.datasets:
            self._append({"what": DATASET, **about, "dataset": subject.dataset, "images": subject.images})
        if subject not in self.subjects:
            plain = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(subject).items()}
            self._append({"what": SUBJECT, **plain})

    def include(self, other: Results) -> None:
        """Take over what another file says; of a job that both have, numbers count before failures, then the later."""
        self.datasets |= other.datasets
        self.subjects += [subject for subject in other.subjects if subject not in self.subjects]
        for key, line in other.lines.items():
            self.lines[key] = max(self.lines.get(key, line), line, key=_worth)

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

    def _take(self, line: dict[str, Any]) -> None:
        rest = {name: value for name, value in line.items() if name != "what"}
        if line["what"] == DATASET:
            self.datasets[rest["dataset"], rest["images"]] = rest
        elif line["what"] == SUBJECT:
            self.subjects.append(from_json(Subject, rest))
        elif line["what"] == MEASUREMENT:
            job = _translated(rest["job"])
            self.lines[_key(job)] = {**rest, "job": job, "result": dict(rest["result"])}
        else:
            raise ValueError(f"{line['what']!r} instead of {DATASET}, {SUBJECT} or {MEASUREMENT}")


# What a fine-tuning depended on besides its scheme before jobs said so.
_UNSAID: dict[str, Any] = {
    "batch_size": 16, "clip": None, "compile": False, "decay_scale": [], "freeze_until": None, "init_c": 1.0,
    "lr": 0.001, "lr_scale": [], "momentum": 0.9, "schedule": "constant", "select_by": "loss",
    "select_on": "validation", "step_epochs": 30, "step_factor": 0.1, "val_share": 0.1, "warmup_epochs": 0.0,
    "weight_decay": 0.0005,
}  # fmt: skip


def _translated(job: dict[str, Any]) -> dict[str, Any]:
    """A job as it is stored today; one of an earlier version said only what its scheme changes."""
    if job.get("source") and job["source"].get("tuned"):
        job = {**job, "source": {**job["source"], "tuned": _translated(job["source"]["tuned"])}}
    if "scheme" not in job:
        return job
    job = {**job, "options": job["options"].replace('"classifier=', '"scorer=')}  # what the part was called
    if "finetune" in (own := json.loads(job["options"])):
        return job
    said = {name: own.pop(name) for name in tuple(own) if name in _UNSAID}
    options = {**own, "rescale": "none", "finetune": {**_UNSAID, **said}}
    return {**job, "options": json.dumps(options, sort_keys=True)}


def _worth(line: Mapping[str, Any]) -> tuple[bool, str]:
    return "failed" not in line["result"], line["date"]


def _key(job: Mapping[str, Any]) -> str:
    return json.dumps(job, sort_keys=True)


def _whole_bytes(path: Path) -> int:
    """The length of the file up to its last line end."""
    return path.read_bytes().rfind(b"\n") + 1


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines; what a killed process left unfinished at the end is none."""
    if path.exists():
        for line in path.read_bytes()[: _whole_bytes(path)].splitlines():
            yield json.loads(line)
