r"""Which locations of an image decide the score of a class: the score, split over the feature maps.

.. math:: a_i = \frac{1}{k} \, x_i^T \frac{\partial s}{\partial x_i}, \qquad \sum_i a_i = s - b

For a linear classifier on A without normalizations, s = <W, A> + b with A = 1/n sum x_i x_i^T, the split is exact:
the gradient at x_i is 2/n W x_i, the degree k is 2, and a_i = x_i^T W x_i / n. Behind a matrix function and the signed
square root no split is the only right one. The choice here is the same formula, gradient times features, summed over
channels. By Euler's theorem it still adds up to the score wherever the head is homogeneous of degree k in the features:
bilinear pooling has 2, a matrix power p times that, the signed square root half of it, a ridge relative to the trace
changes nothing. Whether the head is homogeneous is tried out with features twice as large. Where it is not (a matrix
logarithm, an absolute ridge), k is 1, and the shares say where and how strongly, but do not add up to the score.

A length (l2) at the end is taken for a constant: otherwise the score would not change with the scale of the features,
all shares would add up to zero, and a region would count for the class merely for being less bright than the others.

Paper: Eq. (1); not in its text. Reference: Shrikumar et al., "Not just a black box", 2016 (gradient times input).

Legend: x_i features of location i; s score of the class; b its bias; k degree; a shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..pooling.normalize import L2Normalize
from .bcnn import BCNN
from .engines import DEFAULT_ENGINE, using
from .ensemble import Ensemble, prepared
from .views import autocast

SAME = 1e-3  # how far features twice as large may be from the power that they should give, in relative length


@dataclass(frozen=True)
class Regions:
    """How much each location speaks for a class."""

    shares: Tensor  # (B, H', W'), of the score; negative ones speak against the class
    scores: Tensor  # (B,)
    bias: Tensor  # (B,), of the class; zero where a scorer has none
    adds_up: bool  # whether the shares of an image add up to its score minus the bias


def regions(
    model: BCNN | Ensemble,
    images: Tensor,
    labels: Tensor,
    *,
    precision: str = "float32",
    engine: str = DEFAULT_ENGINE,
) -> Regions:
    """Split the scores of classes over the locations of images.

    Networks of several branches add up the shares of all of them; an ensemble adds up its members' with their weights.
    Maps of other sizes are brought to the finest one.

    Args:
        model: with a scorer, in evaluation mode.
        images: prepared as the model wants them, shape (B, 3, H, W).
        labels: a class per image, shape (B,).
        precision: of the network, "float32" or "bf16"; the head computes in float32 at least.
        engine: how the network is computed.

    Raises: ValueError for a network whose features have no place in the image.
    """
    if isinstance(model, BCNN):
        return _of_network(model, images, labels, precision, engine)
    parts, weights = [], model.weights.tolist()
    for member in model.members:
        assert isinstance(member, BCNN)
        own = prepared(images, model.preprocessing, member.preprocessing)
        parts.append(_of_network(member, own, labels, precision, engine))
    grid = max((part.shares.shape[-2:] for part in parts), key=math.prod)
    return Regions(
        sum_of([w * resized(part.shares, grid) for w, part in zip(weights, parts, strict=True)]),
        sum_of([w * part.scores for w, part in zip(weights, parts, strict=True)]),
        sum_of([w * part.bias for w, part in zip(weights, parts, strict=True)]),
        all(part.adds_up and part.shares.shape[-2:] == grid for part in parts),
    )


def _of_network(model: BCNN, images: Tensor, labels: Tensor, precision: str, engine: str) -> Regions:
    check_explainable(model)
    with torch.no_grad(), autocast(precision, images.device.type), using(engine):
        maps = model.maps(images)
    if any(own.ndim != 4 for own in maps):
        raise ValueError(
            f"explain: expected feature maps of shape (B, C, H, W), got {tuple(maps[0].shape)}; features without a "
            "place in the image cannot be shown on it."
        )
    maps = tuple(own.to(torch.promote_types(own.dtype, torch.float32)).clone().requires_grad_() for own in maps)
    with torch.enable_grad(), _constant_length(model.head):
        scores = model.score_maps(maps)
        chosen = scores.gather(1, labels[:, None].to(scores.device))[:, 0]
        gradients = torch.autograd.grad(chosen.sum(), maps)
    degree = _degree(model, maps)
    grid = max((own.shape[-2:] for own in maps), key=math.prod)
    shares = sum_of(
        [resized((x.detach() * g).sum(1), grid) for x, g in zip(maps, gradients, strict=True)]
    )  # (B, H', W')
    bias = getattr(model.scorer, "bias", None)
    own_bias = torch.zeros_like(chosen) if bias is None else bias.detach()[labels.to(bias.device)]
    whole = degree is not None and all(own.shape[-2:] == grid for own in maps)
    return Regions(shares / (degree or 1.0), chosen.detach(), own_bias, whole)


def check_explainable(model: BCNN | Ensemble) -> None:
    """Refuse, in words, a network whose features cannot be shown on the image."""
    if isinstance(model, Ensemble):
        for member in model.members:
            assert isinstance(member, BCNN)
            check_explainable(member)
        return
    if model.scorer is None:
        raise ValueError("explain: expected a network with a scorer, got one without; train it with bcnn train.")
    if model.front is not None:
        raise ValueError(
            "explain: expected a network that sees the image as it is, got one behind the front "
            f"{model.config.front!r}, which cuts crops out of it; explain a network without a front."
        )


@torch.no_grad()
def _degree(model: BCNN, maps: Sequence[Tensor]) -> float | None:
    """How scores grow with the features, as a power, tried out on the first image; None if there is none."""
    bias: Any = getattr(model.scorer, "bias", 0.0)
    with _fixed_length(model.head) as divide_as_before:
        first = model.score_maps([own[:1] for own in maps]).double() - bias
        divide_as_before()
        double = model.score_maps([2 * own[:1] for own in maps]).double() - bias
    size = float(first.norm())
    if size == 0 or not math.isfinite(size):
        return None
    degree = math.log2(max(float(double.norm()) / size, 1e-9))
    differs = float((double / 2**degree - first).norm()) / size
    return degree if degree > 0.01 and differs < SAME else None


@contextmanager
def _constant_length(head: nn.Module) -> Iterator[None]:
    """While it lasts, a length at the end of the head is a constant to the gradient."""

    def constant(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        x = inputs[0]
        return x * _ratio(output, x).detach()

    with _watched(head, constant):
        yield


@contextmanager
def _fixed_length(head: nn.Module) -> Iterator[Any]:
    """The lengths of a first pass are used again once the function that it gives is called."""
    kept: list[Tensor] = []
    again = [False]

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if again[0]:
            return inputs[0] * kept[0]
        kept.append(_ratio(output, inputs[0]))
        return output

    with _watched(head, keep):
        yield lambda: again.__setitem__(0, True)


@contextmanager
def _watched(head: nn.Module, hook: Any) -> Iterator[None]:
    """A hook on the length at the end of a head, if there is one."""
    parts = list(getattr(head, "normalizations", ()))
    with ExitStack() as stack:
        if parts and isinstance(parts[-1], L2Normalize):
            stack.callback(parts[-1].register_forward_hook(hook).remove)
        yield


def _ratio(output: Tensor, x: Tensor) -> Tensor:
    """What each row of x was multiplied by, shape (B, 1)."""
    ratio: Tensor = output.norm(dim=-1, keepdim=True) / x.norm(dim=-1, keepdim=True).clamp_min(1e-30)
    return ratio


def resized(shares: Tensor, grid: Sequence[int]) -> Tensor:
    """Shares (B, h, w) on another grid, with about the same sum."""
    if tuple(shares.shape[-2:]) == tuple(grid):
        return shares
    factor = math.prod(shares.shape[-2:]) / math.prod(grid)
    larger = functional.interpolate(shares[:, None], size=tuple(grid), mode="bilinear", align_corners=False)
    return factor * larger[:, 0]


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """The sum of tensors of one shape."""
    return torch.stack(list(parts)).sum(0)
