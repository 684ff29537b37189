"""VGG-D (the 16-layer network, "vgg16") and VGG-M.

Paper: Sec. 3.2, "features from relu5 and relu5_3 layers of the VGG-M and VGG-D network respectively". VGG-D is
configuration D of Simonyan & Zisserman 2014, VGG-M is CNN-M of Chatfield et al. 2014, as MatConvNet defines both.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from .contract import Layers

_VGG_D = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


def vgg16() -> Layers:
    """The 13 convolutions of VGG-D: 3 x 3, padded by one, a 2 x 2 maximum after each block. Stride 16 at relu5_3."""
    layers: Layers = OrderedDict()
    channels = 3
    for block, widths in enumerate(_VGG_D, start=1):
        for i, width in enumerate(widths, start=1):
            layers[f"conv{block}_{i}"] = nn.Conv2d(channels, width, 3, padding=1)
            layers[f"relu{block}_{i}"] = nn.ReLU(inplace=True)
            channels = width
        layers[f"pool{block}"] = nn.MaxPool2d(2)
    return layers


def vgg_m() -> Layers:
    """CNN-M: a 448-pixel image gives 27 x 27 features at relu5.

    Response normalization is MatConvNet's [5 2 1e-4 0.75], x / (2 + 1e-4 sum x^2)^0.75 over 5 channels, which torch
    writes with alpha = 5e-4; the second maximum pads at the end ([0 1 0 1]), which is torch's ceil_mode.
    """
    return OrderedDict(
        conv1=nn.Conv2d(3, 96, 7, stride=2),
        relu1=nn.ReLU(inplace=True),
        norm1=nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0),
        pool1=nn.MaxPool2d(3, stride=2),
        conv2=nn.Conv2d(96, 256, 5, stride=2, padding=1),
        relu2=nn.ReLU(inplace=True),
        norm2=nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0),
        pool2=nn.MaxPool2d(3, stride=2, ceil_mode=True),
        conv3=nn.Conv2d(256, 512, 3, padding=1),
        relu3=nn.ReLU(inplace=True),
        conv4=nn.Conv2d(512, 512, 3, padding=1),
        relu4=nn.ReLU(inplace=True),
        conv5=nn.Conv2d(512, 512, 3, padding=1),
        relu5=nn.ReLU(inplace=True),
        pool5=nn.MaxPool2d(3, stride=2),
    )
