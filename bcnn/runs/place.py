"""Folders for results: ours or new, no links in them, and one process group at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..data.contract import shown
from ..files import remove_dead

MARK, LOCK = ".bcnn", ".bcnn.lock"  # in every folder that a command has made for its results


@contextmanager
def held(folder: Path, who: str, *, may_hold: tuple[str, ...] = ()) -> Iterator[None]:
    """A folder for results, made if need be, that no other command works in until the block ends.

    The lock is the operating system's: it ends with the process, however that ends.

    Args:
        folder: new, empty, or made by an earlier command.
        who: the command, for errors.
        may_hold: names of what may lie in a folder that is otherwise new.

    Raises: ValueError if it belongs to somebody else or another command works in it; OSError if it cannot be made.
    """
    claim_folder(folder, who, may_hold=may_hold)
    with locked(folder, who):
        yield


@contextmanager
def locked(folder: Path, who: str) -> Iterator[None]:
    """A folder that is ours, to oneself until the block ends; what killed commands left half-written is removed."""
    from filelock import FileLock, Timeout

    check_no_links(folder, who)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(
            f"{who}: expected nobody else at work in {shown(str(folder))}, got another process; wait for it, or choose "
            "another --out."
        ) from None
    try:
        remove_dead(_below(folder))
        yield
    finally:
        lock.release()


def claim_folder(folder: Path, who: str, *, may_hold: tuple[str, ...] = ()) -> None:
    """Make the folder and mark it as ours; one that holds somebody else's files is left alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(name for name in os.listdir(folder) if not name.startswith(".") and name not in may_hold)
        marked = (folder / MARK).is_file() and not (folder / MARK).is_symlink()
    except OSError as error:
        raise OSError(f"{who}: expected to make the folder {folder}, got: {error}; choose another --out.") from None
    if names and not marked:
        raise ValueError(
            f"{who}: expected {shown(str(folder))} to be new, empty, or a folder of an earlier run, got one with "
            f"{shown(names[0])!r}, which would be at risk; choose another --out."
        )
    with suppress(FileExistsError):
        (folder / MARK).touch(exist_ok=False)


def check_no_links(folder: Path, who: str) -> None:
    """Refuse a folder with links in it, at any depth: what is written there would land elsewhere."""
    link = next((path for path in _below(folder) if path.is_symlink()), None)
    if link is not None:
        raise ValueError(
            f"{who}: expected no links in {shown(str(folder))}, got {shown(str(link))}; what is written there would "
            "land elsewhere. Remove it, or choose another --out."
        )


def check_replaceable(path: Path, who: str, is_ours: Callable[[Path], bool]) -> None:
    """Refuse to write over what no earlier command of this kind has written, and through links.

    Args:
        path: of the file to write.
        who: the command, for errors.
        is_ours: whether a file is of this kind; where it cannot tell, it may raise what reading raises.

    Raises: FileExistsError.
    """
    what = ""
    if path.is_symlink():
        what = "a link, which leads elsewhere"
    elif path.exists():
        try:
            what = "" if path.is_file() and is_ours(path) else "another file"
        except Exception:  # whatever a file of any kind makes the library do that is to read it
            what = "another file"
    if what:
        raise FileExistsError(
            f"{who}: expected {shown(str(path))} to be new or of an earlier bcnn {who}, got {what}; remove it, or "
            "choose another --out."
        )


def _below(folder: Path) -> Iterator[Path]:
    """What lies in a folder and in those within it; links are not followed."""
    with suppress(OSError):
        for entry in sorted(os.scandir(folder), key=lambda own: own.name):
            path = Path(entry.path)
            yield path
            if entry.is_dir(follow_symlinks=False):
                yield from _below(path)
