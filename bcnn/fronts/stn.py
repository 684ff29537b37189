r"""Spatial transformers that choose crops of an image, learned with the network.

.. math:: (t_x, t_y, s)_c = \mathrm{localisation}(I), \qquad A_c = \begin{pmatrix} s & 0 & t_x \\ 0 & s & t_y
    \end{pmatrix}, \qquad V_c(x, y) = I\big(A_c (x, y, 1)^T\big)

with coordinates from -1 to 1 over image and crop, and bilinear sampling.

Reference: Jaderberg et al., "Spatial transformer networks", NIPS 2015, Sec. 4.3: attention (scale 0.5 fixed, only the
translations learned), 2 or 4 transformers on birds of 448 pixels, crops of 224, descriptors side by side. Theirs sends
each crop through a network of its own, all crops here go through the same one; their localisation network is an
Inception of its own at 1e-4 of the learning rate (--lr-scale front=0.0001), ours four convolutions.

Legend: theta (B, N, 2, 3), one A_c per crop.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import unknown_name
from ..linalg.autodiff import full_precision
from .contract import Front

STARTS = ("identity", "tiling")
_WIDTHS = (16, 32, 32, 32)  # of the localisation network
_GRID = 4  # locations a side that its last layer sees


def attention(scale: Tensor, shift: Tensor) -> Tensor:
    """The matrices A of crops, shape (..., 2, 3), from their scales (...) and shifts (..., 2)."""
    return torch.cat([torch.diag_embed(scale[..., None].expand_as(shift)), shift[..., None]], -1)


def transform(images: Tensor, theta: Tensor, size: tuple[int, int]) -> Tensor:
    """Sample crops; outside of an image is zero, which is the mean colour as networks see it.

    Valid: any theta. A crop that is much larger in the image than in pixels is sampled without smoothing, as theirs.
    Half precision is computed in float32, since pixels of a large image could not be told apart in it.

    Args:
        images: shape (B, C, H, W).
        theta: matrices, shape (B, N, 2, 3).
        size: height and width of a crop in pixels.

    Returns:
        Crops, shape `(B, N, C, *size)`, of the dtype of the images.
    """
    count = theta.shape[1]
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    with full_precision(wide):
        shape = (images.shape[0] * count, images.shape[1], *size)
        grid = functional.affine_grid(theta.to(wide.dtype).flatten(0, 1), list(shape), align_corners=False)
        crops = functional.grid_sample(wide.repeat_interleave(count, 0), grid, align_corners=False)
    result: Tensor = crops.unflatten(0, (-1, count)).to(images.dtype)
    return result


class SpatialTransformers(Front):
    """Crops at places that a small network chooses; until it learns, at those where it starts.

    Args:
        transformers: how many crops; the authors' 2 and 4.
        scale: the side of a crop relative to the image at the start; 1 is the whole image, the authors' is 0.5.
        learn_scale: whether the scale is chosen, too, or stays.
        start: identity (all crops in the middle) or tiling (spread evenly over the image).
        size: the side of a crop in pixels; None for that of the image.
        see: the side in pixels of the small copy of the image that the places are chosen by.
    """

    def __init__(
        self,
        transformers: int = 1,
        scale: float = 1.0,
        learn_scale: bool = True,
        start: str = "identity",
        size: int | None = None,
        see: int = 64,
    ):
        super().__init__()
        for name, value in (("transformers", transformers), ("size", size), ("see", see)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"stn: expected `{name}` to be a whole number >= 1, got {value!r}.")
        if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale <= 1:
            raise ValueError(f"stn: expected `scale` above 0 and at most 1, the whole image, got {scale!r}.")
        if start not in STARTS:
            raise unknown_name("stn", "start", start, STARTS)
        self.num_crops, self.size, self.see = transformers, size, see
        self.learn_scale = bool(learn_scale)
        layers: list[nn.Module] = []
        for channels, width in zip((3, *_WIDTHS), _WIDTHS, strict=False):
            layers += [nn.Conv2d(channels, width, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
        self.localisation = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(_GRID), nn.Flatten())
        # The last layer starts with zero weights: its bias alone says where the crops are.
        self.place = nn.Linear(_WIDTHS[-1] * _GRID**2, 3 * transformers)
        nn.init.zeros_(self.place.weight)
        shifts = _tiles(transformers) * (1 - scale) if start == "tiling" else torch.zeros(transformers, 2)
        with torch.no_grad():
            self.place.bias.copy_(torch.cat([shifts, torch.full((transformers, 1), float(scale))], -1).flatten())
        self.register_buffer("scale", torch.tensor(float(scale)))

    scale: Tensor

    def theta(self, images: Tensor) -> Tensor:
        """Where the crops of these images are, shape (B, N, 2, 3)."""
        dtype = self.place.weight.dtype
        small = functional.interpolate(
            images.to(torch.promote_types(images.dtype, torch.float32)), size=(self.see, self.see), mode="bilinear",
            antialias=True,
        )  # fmt: skip
        chosen = self.place(self.localisation(small.to(dtype))).unflatten(-1, (-1, 3))
        scale = chosen[..., 2] if self.learn_scale else self.scale.to(chosen).expand(chosen.shape[:-1])
        return attention(scale, chosen[..., :2])

    def forward(self, images: Tensor) -> Tensor:
        """Cut out the crops, shape (B, N, 3, size, size)."""
        height, width = images.shape[-2:]
        return transform(images, self.theta(images), (self.size or height, self.size or width))

    def extra_repr(self) -> str:
        """Show how many crops it cuts, and how."""
        return f"{self.num_crops}, size={self.size}, see={self.see}, learn_scale={self.learn_scale}"


def _tiles(count: int) -> Tensor:
    """Centres of so many crops, spread over the image in rows, each coordinate from -1 to 1; one is in the middle."""
    rows = max(1, round(math.sqrt(count)))
    counts = [count // rows + (row < count % rows) for row in range(rows)]

    def spread(number: int) -> list[float]:
        return [0.0] if number == 1 else [2 * i / (number - 1) - 1 for i in range(number)]

    pairs = zip(spread(rows), counts, strict=True)
    return torch.tensor([[x, y] for y, number in pairs for x in spread(number)])
