"""A file of predictions that is gone on with where an earlier command was interrupted.

While it is made it bears the ending .part: a line that says what it is of, then one line of JSON per image in order,
with what was predicted or why the image could not be read. At the end it is written in its own form.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from ..data.contract import shown
from ..files import hold, written_whole
from ..metrics import Prediction
from .predictions import FORMS, to_lines


def check_name(out: Path) -> str:
    """The form that the name of a file asks for."""
    form = out.suffix.lower().removeprefix(".")
    if form not in FORMS:
        raise ValueError(f"--out: expected a name that ends with {', '.join(f'.{own}' for own in FORMS)}, got {out}.")
    if out.exists():
        raise FileExistsError(f"--out: expected a file that is new, got {out}; remove it, or choose another name.")
    return form


def identity_of(model: Path, paths: Sequence[Path], **options: Any) -> str:
    """A digest of the model's file, of the images by name, size and date, and of options."""
    with model.open("rb") as file:
        total = hashlib.sha256()
        while block := file.read(1 << 20):
            total.update(block)
    total.update(json.dumps(options, sort_keys=True).encode())
    for path in paths:
        try:
            stat = os.stat(path)
            told = [str(path), stat.st_size, stat.st_mtime_ns]
        except (OSError, ValueError):
            told = [str(path)]
        total.update(json.dumps(told).encode())
    return total.hexdigest()


class Sheet:
    """The file while it is made.

    Args:
        out: its name at the end.
        identity: of what it is made from; a half-made file of anything else is refused.
    """

    def __init__(self, out: Path, identity: str):
        self.out, self.form = out, check_name(out)
        self.part = out.with_name(f"{out.name}.part")
        self._first = json.dumps({"bcnn predict": identity})
        out.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._opened()
        lines = list(self._lines())
        if lines and lines[0] != self._first:
            raise ValueError(
                f"predict: expected {shown(str(self.part))} to be of the same command, got one of another model, other "
                "images or other options; remove it, or choose another --out."
            )
        self.num_done = max(0, len(lines) - 1)
        self._file.truncate(sum(len(line) + 1 for line in lines))  # without a line that was cut off
        self._file.seek(0, os.SEEK_END)
        if not lines:
            self._write(self._first)

    def _opened(self) -> TextIO:
        """The half-made file, to oneself."""
        if self.part.is_symlink() or (self.part.exists() and not self.part.is_file()):
            raise ValueError(f"predict: expected a file at {shown(str(self.part))}, got a link or the like; remove it.")
        file = self.part.open("a+", encoding="ascii", newline="\n")
        if hold(file.fileno()) is False:
            file.close()
            raise ValueError(
                f"predict: expected nobody else at work on {shown(str(self.out))}, got another process; wait for it, "
                "or choose another --out."
            )
        check_name(self.out)  # the other one may just have ended
        return file

    def add(self, result: Prediction | OSError) -> None:
        """The next image."""
        if isinstance(result, OSError):
            self._write(json.dumps({"error": str(result)}))
        else:
            self._write(json.dumps({"image": result.name, "top": result.top}))

    def finish(self, *, top: int) -> list[str]:
        """Write the file in its own form; returns what was wrong with images that could not be read."""
        with written_whole(self.out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
            file.writelines(to_lines(self._predictions(), self.form, top=top))
        broken = [own["error"] for own in self._records() if "error" in own]
        self.part.unlink()
        self._file.close()
        return broken

    def _write(self, line: str) -> None:
        self._file.write(f"{line}\n")
        self._file.flush()

    def _predictions(self) -> Iterator[Prediction]:
        for own in self._records():
            if "image" in own:
                yield Prediction(own["image"], tuple((name, share) for name, share in own["top"]))

    def _records(self) -> Iterator[dict[str, Any]]:
        lines = self._lines()
        next(lines, None)
        yield from map(json.loads, lines)

    def _lines(self) -> Iterator[str]:
        """The lines that are whole."""
        with self.part.open(encoding="ascii", newline="\n") as file:
            yield from (line[:-1] for line in file if line.endswith("\n"))
