"""Fetch, import, verify and load weights by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...errors import unknown_name
from ..backbones import BACKBONES
from . import WEIGHTS, cache
from .contract import Weights
from .fetch import Report, from_archive, from_index, sha256_of, silent
from .formats import state_dict
from .matconvnet import matconvnet

# Of torchvision's file names: the first digits of the sha256.
_PROMISE = re.compile(r"-([0-9a-f]{8})\.pth$")


class Status(NamedTuple):
    """One line of ``bcnn weights list``."""

    name: str
    weights: Weights
    cached: bool


def status() -> list[Status]:
    """Every set of weights, and whether it is in the cache."""
    return [Status(name, weights, cache.path_of(name).exists()) for name, weights in WEIGHTS.items()]


def default_for(backbone: str) -> str | None:
    """The weights of a backbone if none are named: what is in the cache, known ones first, or else can be fetched."""
    names = [name for name, weights in WEIGHTS.items() if weights.backbone == backbone]
    if not names:
        return None
    fetchable = [name for name in names if WEIGHTS[name].package is not None]
    cached = [name for name in names if cache.path_of(name).exists()]
    known = [name for name in cached if WEIGHTS[name].digest is not None]
    return (known + cached + fetchable + names)[0]


def fetch(name: str, report: Report = silent) -> Path:
    """Weights from the package index into the cache; nothing to do if they are there."""
    weights = _lookup(name)
    path = cache.path_of(name)
    if path.exists():
        return path
    package = weights.package
    if package is None:
        raise ValueError(
            f"{name}: expected a file that you bring, it is not in the package index; get {weights.file_hint} and run: "
            f"bcnn weights import {weights.file_hint}"
        )
    with cache.locked(name):
        if not path.exists():  # another process may have been faster
            with from_index(package, report) as original:
                _convert(name, weights, original, source=f"{package.release} {package.member}".strip())
    return path


def load(name: str, report: Report = silent) -> cache.Cached:
    """Weights from the cache, fetched first if need be."""
    fetch(name, report)
    cached = cache.read(name)
    problem = _damage(name, cached)
    if problem is not None:
        raise ValueError(problem)
    return cached


def import_file(path: Path, name: str | None = None, report: Report = silent) -> list[str]:
    """Put the weights in a file of the user's into the cache; returns their names.

    Args:
        path: an archive of the package index, a PyTorch state dict, or a MatConvNet .mat file.
        name: which of `WEIGHTS` it is; None finds out.
        report: hears of progress.
    """
    if not path.is_file():
        raise FileNotFoundError(f"weights import: expected a file, got {path}, which is not there.")
    archived = [key for key, w in WEIGHTS.items() if w.package is not None and w.package.archive == path.name]
    if name is not None:
        _lookup(name)
    if archived:
        if name not in (None, *archived):
            raise ValueError(f"weights import: expected one of {', '.join(archived)} for {path.name}, got {name}.")
        return [_import_archive(key, path, report) for key in archived if name in (None, key)]
    _check_promise(path)
    if name is None:
        name = _guess(path)
    weights = _lookup(name)
    report(f"converting {path.name} to {name}", 0, 0)
    with cache.locked(name):
        _convert(name, weights, path, source=path.name)
    return [name]


def verify(name: str) -> str | None:
    """Say what is wrong with cached weights; None if they are fine."""
    _lookup(name)
    try:
        return _damage(name, cache.read(name))
    except (ValueError, OSError) as error:
        return str(error)


def _damage(name: str, cached: cache.Cached) -> str | None:
    digest = cache.digest_of(cached.tensors)
    expected = WEIGHTS[name].digest or cached.digest
    if digest != expected:
        return f"{cache.path_of(name)}: expected digest {expected}, got {digest}; delete the file and fetch it again."
    return None


def _lookup(name: str) -> Weights:
    if name not in WEIGHTS:
        if Path(name).suffix or Path(name).is_absolute():
            raise ValueError(f"weights: expected a name, got the file {name}; run first: bcnn weights import {name}")
        raise unknown_name("weights", "name", name, WEIGHTS)
    return WEIGHTS[name]


def _import_archive(name: str, path: Path, report: Report) -> str:
    weights = _lookup(name)
    assert weights.package is not None
    with cache.locked(name), from_archive(weights.package, path, report) as original:
        _convert(name, weights, original, source=f"{path.name} {weights.package.member}".strip())
    return name


def _check_promise(path: Path) -> None:
    """Raise if a file is called name-0123abcd.pth, as torchvision's are, and its sha256 does not start so."""
    promised = _PROMISE.search(path.name)
    if promised and not (got := sha256_of(path)).startswith(promised[1]):
        raise ValueError(f"{path}: expected a sha256 that starts with {promised[1]}, as its name says, got {got}.")


def _convert(name: str, weights: Weights, original: Path, *, source: str) -> None:
    imported = weights.read(original, weights.backbone, weights.preprocessing)
    if weights.digest is not None and weights.package is not None:
        digest = cache.digest_of(imported.tensors)
        if digest != weights.digest:
            raise ValueError(f"{name}: expected tensors with digest {weights.digest}, got {digest}, from {source}.")
    cache.write(name, imported, source=source)


def _guess(path: Path) -> str:
    """Find the one entry whose reader accepts the file."""
    by_name = [name for name, weights in WEIGHTS.items() if weights.file_hint == path.name]
    reasons = []
    for name in by_name or _candidates(path):
        weights = WEIGHTS[name]
        try:
            weights.read(path, weights.backbone, weights.preprocessing)
        except ValueError as error:
            reasons.append(str(error))
            continue
        if weights.read is state_dict and not _is_known(path, weights):
            raise ValueError(
                f"{path}: expected a file whose sha256 is known, such as {weights.file_hint}, got another one with the "
                f"shapes of {weights.backbone}; pass --as {name} if you mean to use it under that name."
            )
        return name
    listed = "\n  ".join(dict.fromkeys(reasons)) or "none is read from such a file"
    raise ValueError(
        f"{path}: expected the weights of a known network ({', '.join(BACKBONES)}) in a .mat, .pth or .pt file, or an "
        f"archive of the package index, got none of them:\n  {listed}"
    )


def _is_known(path: Path, weights: Weights) -> bool:
    """Whether a file is the original: by its sha256, or by the start of it in torchvision's name for it."""
    if weights.package is not None:
        return sha256_of(path) == weights.package.member_sha256
    promised = _PROMISE.search(weights.file_hint)
    return promised is not None and sha256_of(path).startswith(promised[1])


def _candidates(path: Path) -> Iterator[str]:
    reader = matconvnet if path.suffix == ".mat" else state_dict
    # Files that users bring first: they carry no digest.
    for own in (True, False):
        yield from (n for n, w in WEIGHTS.items() if w.read is reader and (w.package is None) == own)
