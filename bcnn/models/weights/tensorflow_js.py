"""Keras networks as TensorFlow.js stores them: ``model.json`` with the layers, and shards of plain float32 numbers.

They are read out of an archive of npm (.tgz) without unpacking it; nothing in it is executed.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor

from ...data.preprocess import Preprocessing
from .contract import Imported
from .formats import in_order

_KINDS = {
    "kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias", "moving_mean": "running_mean",
    "moving_variance": "running_var",
}  # fmt: skip


def keras_bgr(path: Path, backbone: str, preprocessing: Preprocessing) -> Imported:
    """A network that Keras took over from Caffe: it sees blue first, so its first kernel is turned to see red first."""
    arrays = read_archive(path)
    first = next(name for name in arrays if name.endswith(".weight"))
    arrays[first] = arrays[first].flip(1)
    return Imported(in_order(path, arrays, backbone), preprocessing)


def read_archive(path: Path) -> dict[str, Tensor]:
    """All tensors in the order of the layers, as ``<layer>.weight`` and so on; kernels as (out, in, height, width)."""
    try:
        with tarfile.open(path) as archive:
            files = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
            about = json.loads(_content(archive, files["model.json"]))
            manifest = about["weightsManifest"]
            values = {
                spec["name"]: _array(spec, group)
                for group, spec in _specs(manifest, lambda name: _content(archive, files[Path(name).name]))
            }
            layers = [layer["name"] for layer in about["modelTopology"]["model_config"]["config"]["layers"]]
    except (tarfile.TarError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: expected an archive of npm with a network of TensorFlow.js, got {error!r}."
        ) from None
    return {
        f"{layer}.{ours}": _turned(values[f"{layer}/{kind}"])
        for layer in layers
        for kind, ours in _KINDS.items()
        if f"{layer}/{kind}" in values
    }


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    assert file is not None  # it is a file
    return file.read()


class _Bytes:
    """The shards of a group behind each other, read from the front."""

    def __init__(self, content: bytes):
        self.content, self.at = content, 0

    def take(self, count: int) -> bytes:
        part = self.content[self.at : self.at + count]
        if len(part) != count:
            raise ValueError(f"expected {count} more bytes, got {len(part)}")
        self.at += count
        return part


def _specs(manifest: Any, read: Any) -> Any:
    """Every tensor's entry in the manifest with the bytes of its group."""
    for group in manifest:
        content = _Bytes(b"".join(map(read, group["paths"])))
        for spec in group["weights"]:
            yield content, spec


def _array(spec: dict[str, Any], content: _Bytes) -> Tensor:
    if spec["dtype"] != "float32" or "quantization" in spec:
        raise ValueError(f"expected {spec['name']} as float32, got {spec.get('quantization', spec['dtype'])}")
    shape = tuple(spec["shape"])
    values = numpy.frombuffer(content.take(4 * int(numpy.prod(shape))), dtype="<f4")
    return torch.from_numpy(values.astype(numpy.float32).reshape(shape))


def _turned(values: Tensor) -> Tensor:
    """Keras has the inputs before the outputs, and both behind height and width."""
    if values.ndim == 4:
        return values.permute(3, 2, 0, 1)
    return values.mT if values.ndim == 2 else values
