"""One network up to its feature maps: backbone, cut, weights, projection, preprocessing; a model has one or more."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from ..data.preprocess import Preprocessing

GEOMETRY = ("size", "resize", "resize_to", "interpolation")  # which square of a photograph a network sees


@dataclass(frozen=True)
class BranchConfig:
    """Everything that makes a branch except the values of its parameters, as plain data."""

    backbone: str
    cut: str  # the layer whose output is taken
    proj_dim: int | None = None  # channels after a 1 x 1 convolution; None: as many as the backbone gives
    freeze_until: str | None = None  # the last layer that training leaves alone
    weights: str | None = None  # where the backbone's start came from
    preprocessing: Preprocessing = field(default_factory=Preprocessing)


class Branch(nn.Module):
    """From images (B, 3, H, W) to feature maps (B, `num_channels`, H', W').

    Args:
        config: what it is.
        backbone: the network, cut.
        given: how the images that it is given are prepared; None: as its own weights want them.
    """

    def __init__(self, config: BranchConfig, backbone: nn.Module, given: Preprocessing | None = None):
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.num_channels = int(backbone.num_channels)  # type: ignore[arg-type]
        self.projection: nn.Module = nn.Identity()
        if config.proj_dim is not None:
            self.projection = nn.Conv2d(self.num_channels, config.proj_dim, 1, bias=False)
            self.num_channels = config.proj_dim
        if given is not None:
            _check_geometry(given, config.preprocessing)
        self._given = given

    def forward(self, images: Tensor) -> Tensor:
        """Return the feature maps after the projection."""
        if self._given is not None:
            images = change_pixels(images, self._given, self.config.preprocessing)
        maps: Tensor = self.projection(self.backbone(images))
        return maps

    def after(self, layer: str, values: Tensor) -> Tensor:
        """The maps from the output of an earlier layer of the backbone."""
        maps: Tensor = self.projection(self.backbone.after(layer, values))  # type: ignore[operator]
        return maps

    def live_config(self) -> BranchConfig:
        """The configuration as the parts are now: layers may have been frozen since."""
        return replace(self.config, freeze_until=getattr(self.backbone, "frozen_until", None))


def change_pixels(images: Tensor, given: Preprocessing, wanted: Preprocessing) -> Tensor:
    """Images whose pixels were prepared for one network, as another wants them."""
    if (given.pixel_max, given.mean, given.std) == (wanted.pixel_max, wanted.mean, wanted.std):
        return images
    ratio = wanted.pixel_max / given.pixel_max
    scale = [a * ratio / b for a, b in zip(given.std, wanted.std, strict=True)]
    shift = [(a * ratio - b) / s for a, b, s in zip(given.mean, wanted.mean, wanted.std, strict=True)]
    return images * images.new_tensor(scale)[:, None, None] + images.new_tensor(shift)[:, None, None]


def geometry(preprocessing: Preprocessing) -> dict[str, Any]:
    """Which square of a photograph the network sees."""
    return {name: getattr(preprocessing, name) for name in GEOMETRY}


def _check_geometry(given: Preprocessing, wanted: Preprocessing) -> None:
    """The square that is cut out of a photograph has to be the same for all networks of a model."""
    for name in GEOMETRY:
        if getattr(given, name) != getattr(wanted, name):
            raise ValueError(
                f"build_model: expected networks that see the same square of an image, got {name} "
                f"{getattr(given, name)!r} and {getattr(wanted, name)!r}; give all of them one size."
            )
