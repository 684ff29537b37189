"""AlexNet in one tower (Krizhevsky 2014), the nearest small network to VGG-M whose weights are in the package index."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from .contract import Layers


def alexnet() -> Layers:
    """Five convolutions; a 448-pixel image gives 27 x 27 features of 256 channels at relu5."""
    return OrderedDict(
        conv1=nn.Conv2d(3, 64, 11, stride=4, padding=2),
        relu1=nn.ReLU(inplace=True),
        pool1=nn.MaxPool2d(3, stride=2),
        conv2=nn.Conv2d(64, 192, 5, padding=2),
        relu2=nn.ReLU(inplace=True),
        pool2=nn.MaxPool2d(3, stride=2),
        conv3=nn.Conv2d(192, 384, 3, padding=1),
        relu3=nn.ReLU(inplace=True),
        conv4=nn.Conv2d(384, 256, 3, padding=1),
        relu4=nn.ReLU(inplace=True),
        conv5=nn.Conv2d(256, 256, 3, padding=1),
        relu5=nn.ReLU(inplace=True),
        pool5=nn.MaxPool2d(3, stride=2),
    )
