"""ResNet-50 (He et al. 2016) as Keras has it.

Every convolution has a bias, batch normalization adds 1e-3 to the variance, and the stride of a stage is in its first
1 x 1 convolution. Keras pads the maximum with zeros, torch with minus infinity: after a relu that is the same.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor, nn

from .contract import Layers

NORM_EPS = 1e-3
_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # inner width, blocks, stride of the first


def resnet50() -> Layers:
    """Stem and 16 blocks, res2a to res5c; res4f has 1024 channels at stride 16, res5c 2048 channels at stride 32."""
    layers: Layers = OrderedDict(
        conv1=nn.Conv2d(3, 64, 7, stride=2, padding=3),
        norm1=nn.BatchNorm2d(64, eps=NORM_EPS),
        relu1=nn.ReLU(inplace=True),
        pool1=nn.MaxPool2d(3, stride=2, padding=1),
    )
    channels = 64
    for stage, (width, count, first_stride) in enumerate(_STAGES, start=2):
        for i, letter in enumerate("abcdef"[:count]):
            layers[f"res{stage}{letter}"] = _Bottleneck(channels, width, stride=1 if i else first_stride)
            channels = 4 * width
    return layers


class _Bottleneck(nn.Module):
    """Narrow, filter, widen; the input is added, through a convolution of its own in the first block of a stage.

    The parts are in Keras's order, in which its weights are read.
    """

    def __init__(self, channels: int, width: int, *, stride: int):
        super().__init__()
        is_first = channels != 4 * width
        self.conv1 = nn.Conv2d(channels, width, 1, stride=stride)
        self.norm1 = nn.BatchNorm2d(width, eps=NORM_EPS)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width, eps=NORM_EPS)
        self.conv3 = nn.Conv2d(width, 4 * width, 1)
        self.conv0 = nn.Conv2d(channels, 4 * width, 1, stride=stride) if is_first else nn.Identity()
        self.norm3 = nn.BatchNorm2d(4 * width, eps=NORM_EPS)
        self.norm0 = nn.BatchNorm2d(4 * width, eps=NORM_EPS) if is_first else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        added: Tensor = self.relu(y + self.norm0(self.conv0(x)))
        return added
