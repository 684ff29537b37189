"""Converted weights in the user's cache: safetensors, written whole, one process at a time, checked by digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ...data.preprocess import Preprocessing
from ...files import at_home, from_json, written_whole
from .contract import Imported, Tensors

VARIABLE = "BCNN_CACHE"
_VERSION = "1"


class Cached(NamedTuple):
    """The content of a file of the cache."""

    tensors: Tensors
    preprocessing: Preprocessing
    source: str
    digest: str  # of the tensors when they were written


def folder() -> Path:
    """Where converted weights live: $BCNN_CACHE, or bcnn in the user's cache folder."""
    if os.environ.get(VARIABLE):
        return at_home(os.environ[VARIABLE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bcnn"


def path_of(name: str) -> Path:
    """The path of the file of one set of weights."""
    return folder() / "weights" / f"{name}.safetensors"


def digest_of(tensors: Tensors) -> str:
    """A sha256 of names, shapes and values, whatever the file's own layout."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(value.numpy().tobytes())
    return total.hexdigest()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """One process at a time converts; the others wait and find the file."""
    from filelock import FileLock

    path = path_of(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        yield


def write(name: str, imported: Imported, *, source: str) -> Path:
    """Put converted weights into the cache, whole or not at all."""
    metadata = {
        "bcnn_weights": _VERSION,
        "name": name,
        "source": source,
        "preprocessing": json.dumps(asdict(imported.preprocessing)),
        "digest": digest_of(imported.tensors),
    }
    with written_whole(path_of(name)) as temporary:
        save_file(imported.tensors, temporary, metadata=metadata)
    return path_of(name)


def read(name: str) -> Cached:
    """Weights from the cache; a file that is not ours or is damaged is refused."""
    path = path_of(name)
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("bcnn_weights") != _VERSION:
                raise ValueError(f"version {about.get('bcnn_weights')!r} instead of {_VERSION!r}")
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        preprocessing = from_json(Preprocessing, json.loads(about["preprocessing"]))
        return Cached(tensors, preprocessing, about["source"], about["digest"])
    except FileNotFoundError:
        raise
    except (SafetensorError, ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(
            f"{path}: expected weights written by bcnn, got {error}; delete the file and fetch or import it again."
        ) from None
