r"""Visual words: features as points, a random sample of the training images' points, and the centres of their clusters.

Poolings that count what lies near which word share it: Fisher vectors, VLAD, NetVLAD.

Legend: X points in rows (B, n, d), as they are; w weights of the points (B, n), their sum 1 per image.
"""

from __future__ import annotations

import warnings
from numbers import Integral

import numpy
import torch
from torch import Tensor

from ..parts.fitting import Batches
from ..parts.shapes import Shape, expect_maps
from .features import as_columns

# Of Cimpoi et al. 2015 (deep-fbanks): 64 words, learned from 1000 points each.
NUM_WORDS = 64
PER_WORD = 1000


def as_points(who: str, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """X of shape (B, n, d) and equal weights (B, n) of the valid locations, in float32 at least.

    Args:
        who: the caller, as errors name it.
        features: (B, C, H, W) or (B, C, L) for layout "maps", (B, N, C) for "tokens".
        layout: "maps" or "tokens".
        mask: True where a location is valid; an image without a valid one has weights of 0.
    """
    X = as_columns(who, features, layout=layout, mask=mask).mT  # divided by the root of the number of locations
    if mask is None:
        n = X.shape[-2]
        return X * n**0.5, X.new_full(X.shape[:-1], 1 / n)
    valid = mask.flatten(1).to(X)
    n_valid = valid.sum(-1, keepdim=True).clamp_min(1)
    return X * n_valid[..., None].sqrt(), valid / n_valid


def sample_points(who: str, batches: Batches, count: int, *, seed: int = 0, least: int = 1) -> numpy.ndarray:
    """At most `count` points of the training images, each as likely as any other, in one pass; shape (m, d), float32.

    Every point draws a random number, and those with the largest stay.

    Args:
        who: the caller, as errors name it.
        batches: what a part is fitted on.
        count: how many.
        seed: of the draw.
        least: an error says so if there are fewer.
    """
    reservoir = Reservoir(count, seed)
    for (features,) in batches():
        reservoir.add(as_points(who, features)[0])
    return reservoir.points(who, least)


class Reservoir:
    """A random sample of points that come one batch after another.

    Args:
        count: how many stay.
        seed: of the draw.
    """

    def __init__(self, count: int, seed: int):
        self._count = count
        self._generator = torch.Generator().manual_seed(seed)
        self._kept = torch.empty(0, 0)
        self._draws = torch.empty(0)

    def add(self, X: Tensor) -> None:
        """Add the points of a batch, shape (B, n, d)."""
        new = X.detach().flatten(0, 1).to("cpu", torch.float32)
        draws = torch.rand(len(new), generator=self._generator)
        kept = torch.cat([self._kept.view(-1, new.shape[-1]), new])
        self._draws, order = torch.cat([self._draws, draws]).sort(descending=True, stable=True)
        self._draws, self._kept = self._draws[: self._count], kept[order[: self._count]]

    def points(self, who: str, least: int) -> numpy.ndarray:
        """The sample, shape (m, d); an error if there are fewer than `least` points in all."""
        if len(self._kept) < least:
            raise ValueError(
                f"{who}: expected at least {least} locations in the training images, one per word, got "
                f"{len(self._kept)}; take more images, larger ones, or fewer words, as in {who}(num_words=8)."
            )
        return self._kept.numpy()


def find_centres(points: numpy.ndarray, num_words: int, seed: int) -> Tensor:
    """Find K centres by k-means, shape (K, d)."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different points than words: some words are equal
        found = KMeans(num_words, n_init=1, random_state=seed).fit(points)
    return torch.from_numpy(found.cluster_centers_)


def squared_distances(X: Tensor, centres: Tensor) -> Tensor:
    """Of every point to every centre, (B, n, d) and (K, d) to (B, n, K); for float64, where the difference is exact."""
    cross = X @ centres.mT
    return (X.square().sum(-1, keepdim=True) - 2 * cross + centres.square().sum(-1)).clamp_min(0)


def check_counts(who: str, **counts: int) -> None:
    """Raise unless all are whole numbers >= 1."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
            raise ValueError(f"{who}: expected `{name}` to be a whole number >= 1, got {value!r}.")


def channels_of(who: str, inputs: tuple[Shape, ...]) -> int:
    """The number of channels of the one network."""
    (maps,) = expect_maps(who, inputs, 1)
    return maps.channels
