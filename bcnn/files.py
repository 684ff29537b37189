"""Files that are written whole or not at all, and plain data from JSON."""

from __future__ import annotations

import csv
import errno
import glob
import json
import os
import re
import secrets
import shutil
import stat
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

try:
    import fcntl
except ImportError:  # not a Unix: what is half-written is told by its age alone
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT)  # what systems say of a disk without room
DEAD_S = 3600  # where files cannot be locked, a temporary one that has not changed for so long belongs to nobody
MOST_TEXT = 2**30  # bytes of a list, a table or JSON that is read
TEMPORARY = ".bcnn-"  # how the names of half-written files begin
DIGEST = "crc32"  # in the header of a file of tensors: a checksum of all else that it holds


class DamagedFileError(ValueError):
    """A file holds something else than was written to it."""


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` to write to; it takes the place of `path` when the block ends well.

    What was written is on the disk before it does, so that a machine that loses power has the old file or the new one.
    """
    path = path.resolve()  # a link stays a link
    temporary: Path | None = None
    handle = -1
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_dead(path.parent.glob(f".*{glob.escape(path.stem)}-*"))
        while handle < 0:
            temporary = _new_name(path)  # known before the file is there: a signal at any moment leaves nothing behind
            handle = _open_new(temporary)
        assert temporary is not None
        yield temporary
        _to_disk(temporary, os.O_RDWR)
        os.umask(mask := os.umask(0o077))  # the only way to ask for it
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
        with suppress(OSError):  # some systems cannot do that to a folder; the file is whole nevertheless
            _to_disk(path.parent, os.O_RDONLY)
    except OSError as error:
        if error.errno not in FULL:
            raise
        free = amount(shutil.disk_usage(existing(path.parent)).free)
        raise OSError(
            f"expected room for {path.name} in {path.parent}, got a full disk ({free} free); make room there."
        ) from None
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if handle >= 0:
            os.close(handle)


def amount(num_bytes: float) -> str:
    """So many bytes for people: gigabytes, or megabytes if it is less than one.

    Example:
        >>> amount(2_500_000_000), amount(1000)
        ('2.5 GB', '0.0 MB')
    """
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.1f} MB"


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    return next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())


def _new_name(path: Path) -> Path:
    return path.parent / f"{TEMPORARY}{path.stem}-{secrets.token_hex(4)}{path.suffix}"


def _open_new(temporary: Path) -> int:
    """A new file of that name, open and locked: as long as it is, its writer is alive; -1 if another has to be made."""
    try:
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
    except FileExistsError:
        return -1
    is_held = hold(handle)
    if is_held is None or (is_held and temporary.exists()):  # else taken for dead before it was locked
        return handle
    os.close(handle)
    return -1


def hold(handle: int) -> bool | None:
    """Lock an open file until it is closed or the process ends, however it ends.

    Returns: False if another process holds it, None where the system cannot lock files.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def remove_dead(paths: Iterable[Path]) -> None:
    """Remove what killed processes left half-written: files named as `written_whole` names them, that nobody holds.

    Earlier versions held nothing, and called them .<name>-<letters>: those go when they are an hour old.
    """
    for path in paths:
        if re.fullmatch(r"\..+-[a-z0-9_]{8}(\.\w+)?", path.name):
            with suppress(OSError):
                _remove_if_dead(path)


def _remove_if_dead(path: Path) -> None:
    handle = os.open(path, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(handle)
        is_held = hold(handle) if path.name.startswith(TEMPORARY) else None
        is_old = time.time() - status.st_mtime > DEAD_S
        if stat.S_ISREG(status.st_mode) and (is_held or (is_held is None and is_old)):
            path.unlink()
    finally:
        os.close(handle)


def at_home(path: str | Path) -> Path:
    """The path with the folder of the user in the place of "~"; of a user who is not there it stays as it is."""
    return Path(os.path.expanduser(path))


def check_regular(path: Path, most: int | None = None) -> None:
    """Refuse what would hang or fill the memory when it is read: pipes, devices, and files of more bytes than `most`.

    Raises: OSError; FileNotFoundError if nothing is there.
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{path}: expected a file, got a folder, a pipe or a device.")
    if most is not None and status.st_size > most:
        raise OSError(f"{path}: expected a file of {amount(most)} at most, got one of {amount(status.st_size)}.")


def read_text(path: Path, *, encoding: str = "utf-8", errors: str = "strict", most: int = MOST_TEXT) -> str:
    """The text of a file, once it is clear that it is one and not too large."""
    check_regular(path, most)
    return path.read_text(encoding=encoding, errors=errors)


def _to_disk(path: Path, flags: int) -> None:
    """Wait until the file, or the list of names that a folder is, would survive a loss of power."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_tensors(path: Path, tensors: Mapping[str, Any], about: Mapping[str, str], *, who: str, remedy: str) -> None:
    """A safetensors file, whole or not at all; who writes it and what to do are said where that fails."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        with written_whole(path) as temporary:
            save_file(dict(tensors), temporary, metadata={**about, DIGEST: _digest(tensors, about)})
    except (OSError, SafetensorError) as error:
        raise OSError(f"{who}: expected to write {path}, got: {str(error).rstrip('.')}. {remedy}") from None


def read_tensors(
    path: Path, *, remedy: str = "Delete it and give the same command again."
) -> tuple[dict[str, Any], dict[str, str]]:
    """Tensors and texts of a safetensors file; what `write_tensors` wrote is checked, older files have no digest.

    Raises: DamagedFileError, OSError, SafetensorError.
    """
    from safetensors import safe_open

    check_regular(path)
    with safe_open(path, framework="pt") as file:
        about = file.metadata() or {}
        tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    written = about.pop(DIGEST, None)
    if written is not None and written != _digest(tensors, about):
        raise DamagedFileError(f"{path}: expected what was written there, got other content; it is damaged. {remedy}")
    return tensors, about


def _digest(tensors: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """A checksum against damage by disks and memory, not by people: several times as fast as a cryptographic one."""
    import torch

    total = zlib.crc32(json.dumps(sorted(about.items())).encode())
    for name in sorted(tensors):
        value = tensors[name]
        total = zlib.crc32(f"{name} {value.dtype} {tuple(value.shape)}".encode(), total)
        total = zlib.crc32(value.reshape(-1).view(torch.uint8).numpy(), total)
    return str(total)


def write_csv(path: Path, records: Sequence[dict[str, Any]]) -> None:
    """One line per record; floats in full, so that a table made from the file equals one made from the run."""
    with written_whole(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(records[0]) if records else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)


def read_csv(path: Path) -> list[dict[str, str]]:
    """The records of `write_csv`, as text."""
    check_regular(path, MOST_TEXT)
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def from_json(kind: type[T], content: dict[str, Any]) -> T:
    """A dataclass from its JSON, lists as tuples; an unknown field is an error: nothing is dropped in silence."""
    unknown = set(content) - {field.name for field in fields(kind)}  # type: ignore[arg-type]
    if unknown:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r} in {kind.__name__}; a newer bcnn may have written it")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in content.items()})
