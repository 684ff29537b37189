"""The archive of `torch.export`, which torch runs without bcnn."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy

from ...files import written_whole

FACTS = ("classes", "preparation", "run")  # extra files, name.json


def require() -> None:
    """Torch is always here."""


def write(program: Any, path: Path, about: Mapping[str, str]) -> None:
    """Write the recorded network, with each fact as an extra file, name.json."""
    import torch

    with written_whole(path) as temporary:
        torch.export.save(program, temporary, extra_files={f"{name}.json": text for name, text in about.items()})


def open_file(path: Path) -> Callable[[numpy.ndarray], numpy.ndarray]:
    """The file as a function of arrays."""
    import torch

    network = torch.export.load(path).module()

    def run(images: numpy.ndarray) -> numpy.ndarray:
        with torch.inference_mode():
            result: numpy.ndarray = network(torch.from_numpy(images)).numpy()
        return result

    return run


def is_ours(path: Path) -> bool:
    """Whether an archive has the facts of `write`; nothing of it is loaded."""
    with zipfile.ZipFile(path) as archive:
        names = {name.rpartition("/")[2] for name in archive.namelist()}
    return {f"{name}.json" for name in FACTS} <= names


def read_about(path: Path) -> dict[str, str]:
    """The facts in a file, as texts of JSON."""
    import torch

    extra = {f"{name}.json": "" for name in FACTS}
    torch.export.load(path, extra_files=extra)
    return {name: extra[f"{name}.json"] for name in FACTS}
