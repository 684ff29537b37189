"""Readers of foreign files: nothing in them is executed, and every tensor lands under the name of our layer.

A reader goes through the network in order: the files hold the same layers in the same order under other names, and
shapes are checked one by one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import replace
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
    """The mapping in a PyTorch file, read with ``weights_only=True``."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError):
        raise ValueError(
            f"{path}: expected a PyTorch file of tensors alone, got something else or a damaged file; "
            "save model.state_dict()."
        ) from None
    if not isinstance(content, Mapping):
        raise ValueError(f"{path}: expected a state dict, got {type(content).__name__}; save model.state_dict().")
    return content


def matconvnet(path: Path, backbone: str, preprocessing: Preprocessing) -> Imported:
    """A MatConvNet network: the mean is subtracted from pixels of 0 to 255, as the file says.

    Where the file holds a whole mean image (imagenet-vgg-m.mat, 224 x 224), its mean over pixels is taken, since our
    images have another size.
    """
    layers, average = _matlab_network(path)
    arrays: dict[str, Tensor] = {}
    for layer in layers:
        if layer.type == "conv":
            kernel, bias = getattr(layer, "weights", None), None
            kernel, bias = (layer.filters, layer.biases) if kernel is None else kernel
            arrays[f"{layer.name}.weight"] = torch.tensor(kernel).permute(3, 2, 0, 1)
            arrays[f"{layer.name}.bias"] = torch.tensor(bias).flatten()
        elif layer.type in ("normalize", "lrn") and [float(x) for x in layer.param] != [5.0, 2.0, 1e-4, 0.75]:
            raise ValueError(
                f"{path}: expected response normalization [5 2 0.0001 0.75], got {layer.param} in {layer.name}; "
                "this is another network than Chatfield et al.'s."
            )
        if len(arrays) == len(names_of(backbone)):
            break  # the fully connected layers are not needed
    mean = torch.as_tensor(average, dtype=torch.float32).reshape(-1, 3).mean(0).tolist()
    return Imported(in_order(path, arrays, backbone), replace(preprocessing, mean=tuple(mean)))


def names_of(backbone: str) -> dict[str, Tensor]:
    """The tensors that a backbone needs, uncut, under the names of its layers; on no device."""
    return dict(_shapes(backbone))


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
        result[name] = value.detach().float().contiguous().clone()
    return result


def _shapes(backbone: str) -> Iterator[tuple[str, Tensor]]:
    with torch.device("meta"):
        layers = BACKBONES[backbone].layers()
    for layer, module in layers.items():
        for key, value in module.state_dict().items():
            if not key.endswith(_COUNTER):
                yield f"{layer}.{key}", value


def _matlab_network(path: Path) -> tuple[list[Any], Any]:
    from scipy.io import loadmat
    from scipy.io.matlab import MatReadError

    try:
        content = loadmat(path, squeeze_me=True, struct_as_record=False)
    except (MatReadError, ValueError, TypeError, NotImplementedError, OSError) as error:
        raise ValueError(f"{path}: expected a MatConvNet .mat file (version 5 to 7.2), got: {error}.") from None
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
