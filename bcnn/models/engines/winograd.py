r"""Convolutions with fewer multiplications: Winograd's, for kernels of 3 x 3 and 5 x 5 with stride 1.

An output tile Y of m x m numbers comes from an input tile d of 6 x 6 (m = 4 for kernels g of 3 x 3, 2 for 5 x 5):

.. math:: Y = A^T \left[ (G g G^T) \odot (B^T d B) \right] A

(Lavin & Gray, Fast Algorithms for Convolutional Neural Networks, 2016), with the points 0, 1, -1, 2, -2 and infinity.
Summed over channels, the products in the middle are 36 products of matrices, (tiles x C) times (C x C'), which take a
quarter of the multiplications of a direct convolution of 3 x 3. The transforms are products with a 36 x 36 and an
m^2 x 36 matrix; they matter the more, the fewer channels there are. Strips of tiles are worked off one after another,
so that what lies between the steps stays in the cache; bias, relu and pooling are done while a strip is there.

Paper: none; the features of Sec. 3.2 in less time. In float32 errors are about ten times those of a direct
convolution, 1e-5 of the largest number.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from .parallel import in_parts

SIDE = 6  # of an input tile
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0)  # and infinity
ONE = SIDE * POINTS.index(1.0) + POINTS.index(1.0)  # what is added there is added to the whole output tile
KERNELS = (3, 5)
MIN_CHANNELS = 64  # with fewer, in or out, the transforms cost what the products save
STRIP = 2**15  # tiles times channels in a strip: enough for fast products, few enough for the cache
PASS_BYTES = 2**23  # of the first maps of images that go through the network together


def applies_to(layer: nn.Module) -> bool:
    """Whether a layer is a convolution that is done faster in this way."""
    return (
        can_be_done(layer)
        and isinstance(layer, nn.Conv2d)
        and min(layer.in_channels, layer.out_channels) >= MIN_CHANNELS
    )


def can_be_done(layer: nn.Module) -> bool:
    """Whether a layer is a convolution that can be done in this way."""
    return (
        type(layer) is nn.Conv2d
        and layer.kernel_size in {(r, r) for r in KERNELS}
        and layer.stride == layer.dilation == (1, 1)
        and layer.groups == 1
        and layer.padding_mode == "zeros"
        and not isinstance(layer.padding, str)
        and not has_hooks(layer)
    )


@cache
def matrices(r: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""A^T, G and B^T of kernels with side r, shapes (m, 6), (6, r) and (6, 6), in float64.

    A polynomial of degree 5 is known from its values at five points and its leading coefficient (infinity). A^T and G
    evaluate the two factors, one of them transposed, and B^T is the transpose of the inverse of evaluation. A row of
    B^T is multiplied by a number that makes it whole, and that of G divided by it.
    """
    m = SIDE + 1 - r
    A, G, E = (_evaluation(degree) for degree in (m, r, SIDE))
    scale = torch.tensor(
        [float(torch.tensor([p - q for q in POINTS if q != p]).prod()) for p in POINTS] + [1.0], dtype=torch.float64
    )
    B = torch.linalg.inv(E) * scale  # columns: coefficients of Lagrange's polynomials, without their denominators
    return A.mT.contiguous(), G / scale[:, None], B.round().mT.contiguous()


def _evaluation(degree: int) -> Tensor:
    """Values of the powers 0, ..., degree - 1 at the points, and the leading coefficient; shape (6, degree)."""
    powers = torch.arange(degree, dtype=torch.float64)
    finite = torch.tensor(POINTS, dtype=torch.float64)[:, None] ** powers
    return torch.cat([finite, torch.eye(degree, dtype=torch.float64)[-1:]])


@cache
def _transforms(r: int) -> tuple[Tensor, Tensor]:
    """Of input and output tiles, as matrices of shape (36, 36) and (m m, 36)."""
    A_t, _, B_t = matrices(r)
    return torch.kron(B_t, B_t).float(), torch.kron(A_t, A_t).float()


def transform_kernels(weight: Tensor) -> Tensor:
    """G g G^T of every kernel, shape (C', C, r, r); result (36, C, C'), a matrix for each place in a tile."""
    G = matrices(weight.shape[-1])[1]
    kernels = weight.new_empty(SIDE * SIDE, weight.shape[1], len(weight))
    for own, place in zip(weight.split(32), kernels.split(32, dim=2), strict=True):  # little memory in float64
        place.unflatten(0, (SIDE, SIDE)).copy_(torch.einsum("ik,jl,ockl->ijco", G, G, own.double()))
    return kernels


class _Room(threading.local):
    """Memory that a thread uses again for every strip and every layer: to be given new memory takes time."""

    def __init__(self) -> None:
        self._flat: dict[str, Tensor] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        """A tensor with anything in it, until somebody takes the same name."""
        size = torch.Size(shape).numel()
        if name not in self._flat or len(self._flat[name]) < size:
            with torch.inference_mode(False):
                self._flat[name] = torch.empty(size)
        return self._flat[name][:size].view(shape)


_room = _Room()


@dataclass(frozen=True)
class Convolution:
    """A convolution with transformed kernels, and what follows it.

    Attributes:
        kernels: from `transform_kernels`, shape (36, C, C').
        bias: shape (C',), or None.
        r: the side of the kernels.
        padding: zeros around the maps, above and below, left and right.
        relu: whether a relu follows.
        pool: whether the maximum over 2 x 2 with stride 2 follows.
    """

    kernels: Tensor
    bias: Tensor | None
    r: int
    padding: tuple[int, int]
    relu: bool = False
    pool: bool = False

    @property
    def m(self) -> int:
        """The side of an output tile, in pixels."""
        return SIDE + 1 - self.r

    def __call__(self, maps: Tensor, room: str | None = None) -> Tensor:
        """From maps (B, C, H, W) in any layout to (B, C', H', W'), laid out channels last.

        With the name of a `room` the result lies in memory that is used again.
        """
        sides = [side + 2 * pad + 1 - self.r for side, pad in zip(maps.shape[2:], self.padding, strict=True)]
        if min(sides) < 1:
            raise ValueError(
                f"winograd: expected maps that kernels of {self.r} x {self.r} fit into, got {tuple(maps.shape)}."
            )
        rows, columns = (-(-side // self.m) for side in sides)  # of tiles
        step = self.m // 2 if self.pool else self.m
        size = (len(maps), rows, step, columns, step, self.kernels.shape[2])
        out = maps.new_empty(size) if room is None else _room.take(room, *size)
        tiles = STRIP // max(self.kernels.shape[1:])
        high = min(rows, max(1, tiles // columns))  # rows of tiles in a strip
        many = max(1, tiles // (rows * columns))  # images in a strip, where they are small
        # Each step of a strip is written where the step before last was: two rooms are enough, a and b.
        for i in range(0, len(maps), many):
            for t in range(0, rows, high):
                place = out[i : i + many, t : t + high]
                self._finish(self._products(self._tiles(maps[i : i + many], t, place)), place)
        whole = out.flatten(3, 4).flatten(1, 2).permute(0, 3, 1, 2)
        shrink = 2 if self.pool else 1
        return whole[:, :, : sides[0] // shrink, : sides[1] // shrink]

    def _tiles(self, maps: Tensor, t: int, place: Tensor) -> Tensor:
        """Input tiles of the rows of tiles from t on that give what goes to `place`; shape (36, tiles, C)."""
        (count, rows, _, columns), m = place.shape[:4], self.m
        C, height, width = maps.shape[1:]
        H, W = rows * m + SIDE - m, columns * m + SIDE - m
        top, left = t * m - self.padding[0], self.padding[1]
        first = max(0, top)
        last = max(first, min(height, top + H))
        strip = _room.take("a", count, H, W, C)
        strip[:, : first - top] = 0
        strip[:, last - top :] = 0
        strip[:, :, :left] = 0
        strip[:, :, left + width :] = 0
        inside = strip[:, first - top : last - top, left : left + width]
        inside.copy_(maps[:, :, first:last].permute(0, 2, 3, 1))
        tiles = _room.take("b", SIDE, SIDE, count, rows, columns, C)
        tiles.copy_(strip.as_strided(tiles.shape, (W * C, C, H * W * C, m * W * C, m * C, 1)))
        return tiles.view(SIDE * SIDE, -1, C)

    def _products(self, tiles: Tensor) -> Tensor:
        """Output tiles, shape (m m, tiles, C')."""
        B_t, A_t = _transforms(self.r)
        num_tiles, width = tiles.shape[1], self.kernels.shape[2]
        values = _room.take("a", *tiles.shape)
        torch.mm(B_t, tiles.flatten(1), out=values.flatten(1))
        products = _room.take("b", SIDE * SIDE, num_tiles, width)
        torch.bmm(values, self.kernels, out=products)
        if self.bias is not None:
            products[ONE] += self.bias
        results = _room.take("a", self.m**2, num_tiles, width)
        torch.mm(A_t, products.flatten(1), out=results.flatten(1))
        return results

    def _finish(self, results: Tensor, place: Tensor) -> None:
        """Pool, cut off at zero, and write to `place`, shape (images, rows, step, columns, step, C')."""
        count, rows, _, columns, _, width = place.shape
        results = results.view(self.m, self.m, count, rows, columns, width)
        if self.pool:
            results = torch.maximum(results[::2], results[1::2], out=results[::2])
            results = torch.maximum(results[:, ::2], results[:, 1::2], out=results[:, ::2])
        place = place.permute(2, 4, 0, 1, 3, 5)
        if self.relu:
            torch.clamp_min(results, 0, out=place)
        else:
            place.copy_(results)


# --- a whole network --------------------------------------------------------------------------------------------------


def run(layers: nn.Sequential, images: Tensor) -> Tensor:
    """The output of layers in a row: convolutions that gain by it are done in this way, the others as torch does."""
    steps = _steps(layers) if is_plain(images) else []
    if not any(isinstance(step, Convolution) for step in steps):
        result: Tensor = layers(images)
        return result
    return in_parts(partial(_run, steps), images, most=max(1, PASS_BYTES // _first_bytes(layers[0], images)))


def run_here(layers: nn.Sequential, maps: Tensor) -> Tensor:
    """The same without threads of its own."""
    return _run(_steps(layers), maps)


def is_plain(images: Tensor) -> bool:
    """Whether they are float32 on a CPU, and are to stay that."""
    return images.device.type == "cpu" and images.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")


def _first_bytes(layer: nn.Module, images: Tensor) -> int:
    """What the first maps of an image take, if the network begins with a convolution."""
    if not isinstance(layer, nn.Conv2d):
        return PASS_BYTES
    return images.shape[2:].numel() * images.element_size() * layer.out_channels // math.prod(layer.stride)


def _steps(layers: nn.Sequential) -> list[nn.Module | Convolution]:
    """Every convolution with relu and pooling that follow it."""
    steps: list[nn.Module | Convolution] = []
    rest = list(layers)
    while rest:
        layer = rest.pop(0)
        if not applies_to(layer):
            steps.append(layer)
            continue
        assert isinstance(layer, nn.Conv2d)
        relu = bool(rest) and type(rest[0]) is nn.ReLU and not has_hooks(rest[0])
        rest = rest[relu:]
        pool = bool(rest) and _halves(rest[0])
        rest = rest[pool:]
        r, padding = layer.kernel_size[0], (int(layer.padding[0]), int(layer.padding[1]))
        steps.append(Convolution(_kernels_of(layer), layer.bias, r, padding, relu, pool))
    return steps


def _run(steps: Sequence[nn.Module | Convolution], maps: Tensor) -> Tensor:
    for i, step in enumerate(steps):
        if not isinstance(step, Convolution):
            maps = step(maps)
        else:
            maps = step(maps, f"maps{i % 2}" if i + 1 < len(steps) else None)
    return maps


def _halves(layer: nn.Module) -> bool:
    """Whether it is the maximum over 2 x 2 with stride 2."""
    if type(layer) is not nn.MaxPool2d or has_hooks(layer):
        return False
    return (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == (2, 2, 0, 1) and not layer.ceil_mode


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody wants to see what goes in or out, which is not there in steps done together."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)


def state_of(weight: Tensor) -> tuple[int, int]:
    """What changes when its numbers change."""
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


_transformed: WeakKeyDictionary[nn.Conv2d, tuple[tuple[int, ...], Tensor]] = WeakKeyDictionary()


def _kernels_of(layer: nn.Conv2d) -> Tensor:
    """Its kernels, transformed once, and again whenever they have changed."""
    weight = layer.weight.detach()
    state = state_of(weight)
    known = _transformed.get(layer)
    if known is None or known[0] != state:
        with torch.inference_mode(False):
            known = _transformed[layer] = state, transform_kernels(weight)
    return known[1]
