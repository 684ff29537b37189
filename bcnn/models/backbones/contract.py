"""What a backbone is: layers in a row, each with a name, cut where the features are taken."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ...errors import unknown_name
from .. import engines

Layers = OrderedDict[str, nn.Module]


@dataclass(frozen=True)
class BackboneSpec:
    """How to build a network, where it is cut by default, and the smallest image it takes."""

    layers: Callable[[], Layers]
    cut: str
    about: str
    min_size: int = 32


KEEP_CHANNELS = (nn.ReLU, nn.MaxPool2d, nn.BatchNorm2d)


class Backbone(nn.Module):
    """A network from images (B, 3, H, W) to feature maps (B, `num_channels`, H', W').

    Args:
        name: as in `BACKBONES`.
        layers: all layers in order, by name.
        cut: the last layer to keep.
        min_size: the smallest side of an image.
    """

    def __init__(self, name: str, layers: Layers, *, cut: str, min_size: int):
        super().__init__()
        if cut not in layers:
            raise unknown_name(name, "layer", cut, layers)
        self.name, self.cut, self.min_size = name, cut, min_size
        names = list(layers)
        self.layers = nn.Sequential(OrderedDict((key, layers[key]) for key in names[: names.index(cut) + 1]))
        self.frozen_until: str | None = None
        self.checkpointing = False
        self.num_channels = self._probe()

    def forward(self, images: Tensor) -> Tensor:
        """Return the features at the cut."""
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < self.min_size:
            raise ValueError(
                f"{self.name}: expected images of shape (B, 3, H, W) with H, W >= {self.min_size}, "
                f"got {tuple(images.shape)}; prepare them with the weights' Preprocessing."
            )
        if not images.is_floating_point():
            raise TypeError(f"{self.name}: expected floating-point images, got {images.dtype}; see Preprocessing.")
        return self._run(0, images)

    def after(self, layer: str, maps: Tensor) -> Tensor:
        """The features at the cut from the output of an earlier layer."""
        names = list(self.layers._modules)
        if layer not in names:
            raise unknown_name(self.name, "layer", layer, names)
        return self._run(names.index(layer) + 1, maps)

    def _run(self, start: int, values: Tensor) -> Tensor:
        # Convolutions are faster so on a CPU, some by a third and more; the values are the same.
        values = values.contiguous(memory_format=torch.channels_last)
        if not (self.checkpointing and torch.is_grad_enabled()):
            return engines.run(nn.Sequential(*list(self.layers)[start:]), values)
        for segment in self._segments(start):
            values = checkpoint(segment, values, use_reentrant=False)
        return values

    def _segments(self, start: int) -> list[nn.Sequential]:
        """Runs of layers, about as many as the root of their number; none begins with a layer that works in place."""
        layers = list(self.layers)[start:]
        starts = [0, *(i for i, layer in enumerate(layers) if i and any(True for _ in layer.parameters()))]
        step = max(1, round(len(starts) ** 0.5))
        cuts = [*starts[::step], len(layers)]
        return [nn.Sequential(*layers[a:b]) for a, b in pairwise(cuts)]

    def checkpoint_activations(self, on: bool = True) -> Backbone:
        """Keep few outputs for the backward pass and compute the others again: less memory, a third more time."""
        self.checkpointing = on
        return self

    def freeze_until(self, layer: str | None) -> Backbone:
        """Let the layers up to and including `layer` stay as they are: no gradients, batch statistics fixed.

        None frees all of them.
        """
        names = list(self.layers._modules)
        if layer is not None and layer not in names:
            raise unknown_name(self.name, "layer to freeze until", layer, names)
        self.frozen_until = layer
        stop = 0 if layer is None else names.index(layer) + 1
        for i, module in enumerate(self.layers):
            module.requires_grad_(i >= stop)
        return self.train(self.training)

    def train(self, mode: bool = True) -> Backbone:
        """As `nn.Module.train`, but frozen layers stay in evaluation mode."""
        super().train(mode)
        if self.frozen_until is not None:
            for name, module in self.layers.named_children():
                module.eval()
                if name == self.frozen_until:
                    break
        return self

    def extra_repr(self) -> str:
        """Show where the network is cut and which layers are frozen."""
        return f"{self.name}, cut={self.cut!r}, num_channels={self.num_channels}, frozen_until={self.frozen_until!r}"

    def _probe(self) -> int:
        if torch.get_default_device().type == "meta":  # torch would load its compiler, which takes seconds
            rest = list(self.layers)
            while rest and type(rest[-1]) in KEEP_CHANNELS:
                rest.pop()
            if rest and isinstance(rest[-1], nn.Conv2d):
                return rest[-1].out_channels
        training = self.training
        self.eval()
        with torch.no_grad():
            channels = self.layers(torch.zeros(1, 3, self.min_size, self.min_size)).shape[1]
        self.train(training)
        return int(channels)
