"""Text files of datasets: one line an image, errors with file and line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from ..files import read_text
from .contract import shown


def find_root(who: str, path: Path, marker: str, children: Sequence[str], layout: str) -> Path:
    """The folder that holds `marker`: `path` itself or one of its `children`."""
    for root in (path, *(path / child for child in children)):
        if (root / marker).exists():
            return root
    raise FileNotFoundError(
        f"{who}: expected {marker} in {shown(str(path))}, got no such thing; the layout is: {layout}."
    )


def check_folder(who: str, folder: Path, layout: str) -> None:
    """Refuse a dataset without this folder."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{who}: expected the folder {folder}, got none; the layout is: {layout}.")


def read_pairs(path: Path) -> Iterator[tuple[int, str, str]]:
    """Lines of two fields, the second with its spaces: (line number, first, second); blank lines are passed over."""
    for number, line in read_lines(path):
        first, _, second = line.partition(" ")
        if not second.strip():
            raise malformed(path, number, "two fields separated by a space", line)
        yield number, first, second.strip()


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and lines without the blanks around them; blank lines are passed over."""
    try:
        text = read_text(path, encoding="utf-8-sig", errors="surrogateescape")
    except FileNotFoundError:
        raise FileNotFoundError(f"{shown(str(path))}: expected this file of the dataset, got nothing there.") from None
    for number, line in enumerate(text.split("\n"), start=1):
        if stripped := line.strip().replace("\t", " "):
            yield number, stripped


def malformed(path: Path, number: int, expected: str, got: object, what: str = "line") -> ValueError:
    """The error for a line that cannot be right."""
    return ValueError(f"{shown(str(path))}, {what} {number}: expected {expected}, got {shown(repr(got))}.")


def inside(path: Path, number: int, name: str) -> str:
    """A name of a file below the dataset's folder, as it is; one that leads elsewhere is an error."""
    parts = PurePosixPath(name)
    if parts.is_absolute() or ".." in parts.parts:
        raise malformed(path, number, "a path below the folder of the images", name)
    return name
