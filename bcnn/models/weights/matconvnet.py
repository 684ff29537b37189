"""MatConvNet's .mat files: the paper's own weights. The file's layers are compared with ours one by one.

VGG-S has the kernels of VGG-M with other strides: shapes alone do not tell them apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...data import mat
from ...data.preprocess import Preprocessing
from ..backbones import BACKBONES
from .contract import Imported
from .formats import in_order


def matconvnet(path: Path, backbone: str, preprocessing: Preprocessing) -> Imported:
    """A MatConvNet network: the mean is subtracted from pixels of 0 to 255, as the file says.

    Where the file holds a whole mean image (imagenet-vgg-m.mat, 224 x 224), its mean over pixels is taken, since our
    images have another size. A maximum may be padded at its end or not: that is one row of the features at most.
    """
    layers, average = _network(path)
    arrays: dict[str, Tensor] = {}
    for layer, (name, module) in zip(layers, _needed(backbone), strict=False):
        expected, got = _described(module), _found(layer)
        if expected != got:
            raise ValueError(
                f"{path}: expected {name} of {backbone} to be {expected}, got {got} in {getattr(layer, 'name', '?')}; "
                "is it another network?"
            )
        if isinstance(module, nn.Conv2d):
            kernel, bias = layer.weights if hasattr(layer, "weights") else (layer.filters, layer.biases)
            arrays[f"{name}.weight"] = torch.tensor(kernel).permute(3, 2, 0, 1)
            arrays[f"{name}.bias"] = torch.tensor(bias).flatten()
    mean = torch.as_tensor(average, dtype=torch.float32).reshape(-1, 3).mean(0).tolist()
    return Imported(in_order(path, arrays, backbone), replace(preprocessing, mean=tuple(mean)))


def _needed(backbone: str) -> Iterator[tuple[str, nn.Module]]:
    """Our layers up to the last one with weights."""
    with torch.device("meta"):
        layers = list(BACKBONES[backbone].layers().items())
    last = max(i for i, (_, module) in enumerate(layers) if isinstance(module, nn.Conv2d))
    yield from layers[: last + 1]


def _described(module: nn.Module) -> str:
    """One of our layers in words that `_found` uses, too."""
    if isinstance(module, nn.Conv2d):
        return f"conv stride {module.stride[0]} pad {module.padding[0]}"
    if isinstance(module, nn.MaxPool2d):
        return f"max pool {module.kernel_size} stride {module.stride}"
    if isinstance(module, nn.LocalResponseNorm):
        return f"lrn [{module.size} {module.k:g} {module.alpha / module.size:g} {module.beta:g}]"
    return type(module).__name__.lower()


def _found(layer: Any) -> str:
    """Describe a layer of the file in our words."""
    if layer.type == "conv":
        return f"conv stride {_same(layer, 'stride', 1)} pad {_same(layer, 'pad', 0)}"
    if layer.type == "pool":
        pad = torch.as_tensor(getattr(layer, "pad", 0)).flatten().tolist()
        odd = "" if pad in ([0], [0, 0, 0, 0], [0, 1, 0, 1]) else f" pad {pad}"
        return (
            f"{getattr(layer, 'method', 'max')} pool {_same(layer, 'pool', 1)} stride {_same(layer, 'stride', 1)}{odd}"
        )
    if layer.type in ("lrn", "normalize"):
        return f"lrn [{' '.join(f'{float(x):g}' for x in layer.param)}]"
    return str(layer.type)


def _same(layer: Any, field: str, default: int) -> Any:
    """A number that MatConvNet may write once or once a side."""
    values = set(torch.as_tensor(getattr(layer, field, default)).flatten().tolist())
    return values.pop() if len(values) == 1 else sorted(values)


def _network(path: Path) -> tuple[list[Any], Any]:
    what = "a MatConvNet .mat file (version 5 to 7.2)"
    content = mat.read(path, what, squeeze_me=True, struct_as_record=False)
    try:
        network = content.get("net")
        layers = content["layers"] if network is None else network.layers
        meta = content.get("meta") if network is None else getattr(network, "meta", None)
        if meta is None:  # before MatConvNet 1.0-beta17 it stood beside the layers
            normalization = content["normalization"] if network is None else network.normalization
        else:
            normalization = meta.normalization
        return list(layers), normalization.averageImage
    except (KeyError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: expected `layers` and `meta.normalization.averageImage`, got {error}.") from None
