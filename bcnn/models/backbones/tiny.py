"""A network of a few thousand parameters, for tests and quick looks; it has no weights."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from .contract import Layers


def tiny() -> Layers:
    """Three convolutions, stride 8; 32 channels."""
    layers: Layers = OrderedDict()
    for i, (channels, width) in enumerate(((3, 8), (8, 16), (16, 32)), start=1):
        layers[f"conv{i}"] = nn.Conv2d(channels, width, 3, stride=2, padding=1)
        layers[f"relu{i}"] = nn.ReLU(inplace=True)
    return layers
