"""One file per format that a network can be exported to: how it is written, and how it is run again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from . import onnx, torch

Runner = Callable[[numpy.ndarray], numpy.ndarray]  # images (B, 3, H, W), float32 in [0, 1], to probabilities (B, k)


@dataclass(frozen=True)
class ExportFormat:
    """How a recorded network becomes a file, and how that file is run by the program it is for."""

    suffix: str
    decomposes: bool  # whether it has eigenvalues and the like; else matrix functions become products
    require: Callable[[], None]  # an ImportError in words where a package is missing
    write: Callable[[Any, Path, Mapping[str, str]], None]  # the program of torch.export, where to, facts as texts
    open: Callable[[Path], Runner]
    is_ours: Callable[[Path], bool]  # whether a file was written by `write`; may raise what reading raises


EXPORTS: dict[str, ExportFormat] = {
    "onnx": ExportFormat(".onnx", False, onnx.require, onnx.write, onnx.open_file, onnx.is_ours),
    "torch": ExportFormat(".pt2", True, torch.require, torch.write, torch.open_file, torch.is_ours),
}
