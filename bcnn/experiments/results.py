"""Measurements in a file, one JSON line each, from which all tables and figures are made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from .. import __version__, machine
from ..files import from_json, written_whole
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
        self.datasets: dict[str, dict[str, Any]] = {}  # by digest
        self.subjects: list[Subject] = []
        self.lines: dict[str, dict[str, Any]] = {}  # measurements by job
        for line in _read(path) if path is not None else ():
            self._take(line)

    def get(self, job: Any) -> dict[str, Any] | None:
        """The result of a job, if it is there."""
        line = self.lines.get(_key(to_plain(job)))
        return None if line is None else line["result"]

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
        if subject.images not in self.datasets:
            self._append({"what": DATASET, "images": subject.images, **about})
        if subject not in self.subjects:
            plain = {name: list(v) if isinstance(v, tuple) else v for name, v in vars(subject).items()}
            self._append({"what": SUBJECT, **plain})

    def include(self, other: Results) -> None:
        """Take over what another file says; the later measurement of a job counts."""
        self.datasets |= other.datasets
        self.subjects += [subject for subject in other.subjects if subject not in self.subjects]
        self.lines |= other.lines

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
                file.flush()
                os.fsync(file.fileno())
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        what = line["what"]
        rest = {name: value for name, value in line.items() if name != "what"}
        if what == DATASET:
            self.datasets[rest["images"]] = rest
        elif what == SUBJECT:
            self.subjects.append(from_json(Subject, rest))
        elif what == MEASUREMENT:
            self.lines[_key(rest["job"])] = rest
        else:
            raise ValueError(f"{self.path}: expected lines on {DATASET}, {SUBJECT}, {MEASUREMENT}, got {what!r}.")


def _key(job: Mapping[str, Any]) -> str:
    return json.dumps(job, sort_keys=True)


def _read(path: Path) -> Iterable[dict[str, Any]]:
    """The lines; one that a killed process left unfinished at the end is removed."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    whole, unfinished = text[: text.rfind("\n") + 1], text[text.rfind("\n") + 1 :]
    if unfinished:
        with written_whole(path) as temporary:
            temporary.write_text(whole, encoding="utf-8")
    lines = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            content = json.loads(line)
            if not isinstance(content, dict) or "what" not in content:
                raise ValueError("no JSON object with `what`")
        except ValueError as error:
            raise ValueError(f"{path}: expected one JSON object a line, got in line {number}: {error}.") from None
        lines.append(content)
    return lines
