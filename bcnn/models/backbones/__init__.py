"""One file per family of networks; what each is stands here, beside its name. `timm/...` names go to timm."""

from __future__ import annotations

from ...errors import unknown_name
from .alexnet import alexnet
from .contract import Backbone, BackboneSpec
from .mobile import efficientnet_lite0, efficientnet_lite1, efficientnet_lite2, mobilenet_v2
from .resnet import resnet50
from .timm import PREFIX, TimmBackbone
from .tiny import tiny
from .vgg import vgg16, vgg_m

BACKBONES: dict[str, BackboneSpec] = {
    "vgg16": BackboneSpec(vgg16, cut="relu5_3", about="VGG-D, 512 channels, stride 16", min_size=32),  # the paper's
    "vgg_m": BackboneSpec(vgg_m, cut="relu5", about="CNN-M, 512 channels, stride 16", min_size=64),  # the paper's
    "alexnet": BackboneSpec(alexnet, cut="relu5", about="256 channels, stride 16", min_size=64),
    "mobilenet_v2": BackboneSpec(mobilenet_v2, cut="block17", about="320 channels, stride 32", min_size=32),
    "efficientnet_lite0": BackboneSpec(efficientnet_lite0, cut="block16", about="320 channels, stride 32", min_size=32),
    "efficientnet_lite1": BackboneSpec(efficientnet_lite1, cut="block21", about="320 channels, stride 32", min_size=32),
    "efficientnet_lite2": BackboneSpec(efficientnet_lite2, cut="block21", about="352 channels, stride 32", min_size=32),
    "resnet50": BackboneSpec(resnet50, cut="res5c", about="2048 channels, stride 32", min_size=32),
    "tiny": BackboneSpec(tiny, cut="relu3", about="32 channels, stride 8, no weights", min_size=16),
}


def make_backbone(
    name: str, *, cut: str | None = None, pretrained: bool = False, image_size: int | None = None
) -> Backbone | TimmBackbone:
    """A network by name, cut after a named layer, with random weights; `pretrained` and `image_size` are for timm's."""
    if name.startswith(PREFIX):
        return TimmBackbone(name, cut=cut, pretrained=pretrained, image_size=image_size)
    if name not in BACKBONES:
        raise unknown_name("build_model", "backbone", name, (*BACKBONES, f"{PREFIX}<any timm model>"))
    spec = BACKBONES[name]
    return Backbone(name, spec.layers(), cut=cut or spec.cut, min_size=spec.min_size)
