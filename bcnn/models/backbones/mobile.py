"""MobileNetV2 (Sandler et al. 2018), EfficientNet-Lite0 to 2 (Google, 2020): inverted residuals, small and modern."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from .contract import Layers

# Expansion, output channels, blocks, stride of the first, kernel.
_MOBILENET_V2 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)  # fmt: skip
_EFFICIENTNET_LITE0 = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip
_EFFICIENTNET_LITE1 = (
    (1, 16, 1, 1, 3), (6, 24, 3, 2, 3), (6, 40, 3, 2, 5), (6, 80, 4, 2, 3), (6, 112, 4, 1, 5), (6, 192, 5, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip
_EFFICIENTNET_LITE2 = (
    (1, 16, 1, 1, 3), (6, 24, 3, 2, 3), (6, 48, 3, 2, 5), (6, 88, 4, 2, 3), (6, 120, 4, 1, 5), (6, 208, 5, 2, 5),
    (6, 352, 1, 1, 3),
)  # fmt: skip


def mobilenet_v2() -> Layers:
    """Stem, blocks 1 to 17, head; block13 ends stride 16 (96 channels), block17 has 320 channels at stride 32."""
    return _network(_MOBILENET_V2, same=False, norm_eps=1e-5)


def efficientnet_lite0() -> Layers:
    """Stem, blocks 1 to 16, head; block11 ends stride 16 (112 channels), block16 has 320 channels at stride 32.

    Convolutions pad as TensorFlow's "same" does, as the weights were trained.
    """
    return _network(_EFFICIENTNET_LITE0, same=True, norm_eps=1e-3)


def efficientnet_lite1() -> Layers:
    """Stem, blocks 1 to 21, head; block15 ends stride 16 (112 channels), block21 has 320 channels at stride 32."""
    return _network(_EFFICIENTNET_LITE1, same=True, norm_eps=1e-3)


def efficientnet_lite2() -> Layers:
    """Stem, blocks 1 to 21, head; block15 ends stride 16 (120 channels), block21 has 352 channels at stride 32."""
    return _network(_EFFICIENTNET_LITE2, same=True, norm_eps=1e-3)


def _network(stages: tuple[tuple[int, ...], ...], *, same: bool, norm_eps: float) -> Layers:
    layers: Layers = OrderedDict(stem=_unit(3, 32, 3, stride=2, same=same, norm_eps=norm_eps))
    channels = 32
    for expansion, width, count, first_stride, kernel in stages:
        for i in range(count):
            stride = first_stride if i == 0 else 1
            layers[f"block{len(layers)}"] = _InvertedResidual(
                channels, width, kernel, stride=stride, expansion=expansion, same=same, norm_eps=norm_eps
            )
            channels = width
    layers["head"] = _unit(channels, 1280, 1, same=same, norm_eps=norm_eps)
    return layers


class _InvertedResidual(nn.Module):
    """Expand, filter each channel, project; the input is added where shapes allow."""

    def __init__(
        self, channels: int, width: int, kernel: int, *, stride: int, expansion: int, same: bool, norm_eps: float
    ):
        super().__init__()
        inner = channels * expansion
        units = [] if expansion == 1 else [_unit(channels, inner, 1, same=same, norm_eps=norm_eps)]
        units += [
            _unit(inner, inner, kernel, stride=stride, groups=inner, same=same, norm_eps=norm_eps),
            _unit(inner, width, 1, same=same, norm_eps=norm_eps, active=False),
        ]
        self.units = nn.Sequential(*units)
        self.adds_input = stride == 1 and channels == width

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.units(x)
        return x + y if self.adds_input else y


def _unit(
    channels: int,
    width: int,
    kernel: int,
    *,
    same: bool,
    norm_eps: float,
    stride: int = 1,
    groups: int = 1,
    active: bool = True,
) -> nn.Sequential:
    """Convolution, batch normalization, and relu6 if `active`."""
    conv = (_SameConv2d if same else _Conv2d)(channels, width, kernel, stride=stride, groups=groups)
    units = [conv, nn.BatchNorm2d(width, eps=norm_eps), *([nn.ReLU6(inplace=True)] if active else [])]
    return nn.Sequential(*units)


def _Conv2d(channels: int, width: int, kernel: int, *, stride: int, groups: int) -> nn.Conv2d:  # noqa: N802
    return nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, groups=groups, bias=False)


class _SameConv2d(nn.Module):
    """A convolution padded as TensorFlow does: with a stride, one row and column more at the end than at the start."""

    def __init__(self, channels: int, width: int, kernel: int, *, stride: int, groups: int):
        super().__init__()
        self.stride, self.groups = stride, groups
        reference = nn.Conv2d(channels, width, kernel, groups=groups, bias=False)
        self.weight = reference.weight

    def forward(self, x: Tensor) -> Tensor:
        kernel = self.weight.shape[-1]
        total = [max((-(-side // self.stride) - 1) * self.stride + kernel - side, 0) for side in x.shape[-2:]]
        sides = [share for t in reversed(total) for share in (t // 2, t - t // 2)]
        return torch.conv2d(pad(x, sides), self.weight, stride=self.stride, groups=self.groups)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, stride={self.stride}, groups={self.groups}"
