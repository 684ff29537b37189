"""Readers of foreign files: nothing in them is executed, and every tensor lands under the name of our layer.

A reader goes through the network in order: the files hold the same layers in the same order under other names, and
shapes are checked one by one.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...data.preprocess import Preprocessing
from ..backbones import BACKBONES
from .contract import Imported, Tensors

_COUNTER = "num_batches_tracked"


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that can make NumPy arrays and plain containers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        if (module, name) in {("numpy._core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}:
            try:
                return super().find_class(module, name)
            except ModuleNotFoundError:  # NumPy 1 has the old name
                return super().find_class(module.replace("numpy._core", "numpy.core"), name)
        raise pickle.UnpicklingError(f"expected NumPy arrays alone, got {module}.{name}")


def flax_pickle(path: Path, backbone: str, preprocessing: Preprocessing) -> Imported:
    """Convolutions ``<network>/Conv_<i>/{kernel, bias}``, kernels (height, width, in, out), in a pickle of arrays."""
    try:
        with path.open("rb") as file:
            tree = _ArraysOnly(file).load()
        network = next(value for key, value in tree.items() if not key.startswith("NetLinLayer"))
        convolutions = [network[f"Conv_{i}"] for i in range(len(network))]
    except (pickle.UnpicklingError, EOFError, AttributeError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a pickle of convolution arrays, got {error}.") from None
    arrays: dict[str, Tensor] = {}
    for i, conv in enumerate(convolutions):
        arrays[f"Conv_{i}.weight"] = torch.tensor(conv["kernel"]).permute(3, 2, 0, 1)
        arrays[f"Conv_{i}.bias"] = torch.tensor(conv["bias"])
    return Imported(in_order(path, arrays, backbone), preprocessing)


def state_dict(path: Path, backbone: str, preprocessing: Preprocessing) -> Imported:
    """A PyTorch state dict in the order of the network, such as torchvision's; a classifier after it is left out."""
    return Imported(in_order(path, load_state(path), backbone), preprocessing)


def load_state(path: Path) -> Mapping[str, Any]:
    """The state dict in a PyTorch file, by itself or under ``state_dict``, read with ``weights_only=True``."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception:  # whatever a damaged or foreign file leads to
        raise ValueError(
            f"{path}: expected a PyTorch file of tensors alone, got something else or a damaged file; "
            "save model.state_dict()."
        ) from None
    inner = content.get("state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(inner, Mapping):
        raise ValueError(f"{path}: expected a state dict, got {type(inner).__name__}; save model.state_dict().")
    return {str(key): value for key, value in inner.items()}


def names_of(backbone: str) -> dict[str, Tensor]:
    """The tensors that a backbone needs, uncut, under the names of its layers; on no device."""
    with torch.device("meta"):
        layers = BACKBONES[backbone].layers()
    found = {f"{layer}.{key}": value for layer, own in layers.items() for key, value in own.state_dict().items()}
    return {name: value for name, value in found.items() if not name.endswith(_COUNTER)}


def in_order(path: Path, arrays: Mapping[str, Any], backbone: str) -> Tensors:
    """The first tensors of a file under our names, each checked for kind and shape."""
    wanted = names_of(backbone)
    found = [(k, v) for k, v in arrays.items() if isinstance(v, Tensor) and not k.endswith(_COUNTER)]
    if len(found) < len(wanted):
        raise ValueError(f"{path}: expected {len(wanted)} tensors for {backbone}, got {len(found)}.")
    result: Tensors = {}
    for (name, like), (key, value) in zip(wanted.items(), found, strict=False):
        if value.shape != like.shape or key.rsplit(".", 1)[-1] != name.rsplit(".", 1)[-1]:
            raise ValueError(
                f"{path}: expected {name} of shape {tuple(like.shape)} for {backbone}, got {key} of shape "
                f"{tuple(value.shape)}; is it another network?"
            )
        if not value.isfinite().all():
            raise ValueError(f"{path}: expected finite weights, got infinite or NaN ones in {key}.")
        result[name] = value.detach().float().contiguous().clone()
    return result
