"""Features of every shape, and the naive reference: a loop over locations in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from bcnn.pooling.head import PRESETS, Head
from tests.helpers import SCIPY


def relu_features(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.relu(torch.randn(*shape, generator=generator, dtype=torch.float64)).to(dtype)


def locations(features: Tensor, layout: str = "maps", mask: Tensor | None = None) -> list[np.ndarray]:
    """For each image, its valid features one by one, shape (n, d)."""
    features = features.detach().double()
    flat = features if layout == "tokens" else features.flatten(2).movedim(1, 2)  # (B, n, d)
    valid = torch.ones(flat.shape[:2], dtype=torch.bool) if mask is None else mask.flatten(1)
    return [image[keep].numpy() for image, keep in zip(flat, valid, strict=True)]


def naive_matrix(points: np.ndarray, eps: float, eps_scale: str, other: np.ndarray | None = None) -> np.ndarray:
    """Eq. (1), term by term."""
    other = points if other is None else other
    total = np.zeros((points.shape[1], other.shape[1]))
    for x, y in zip(points, other, strict=True):
        total += np.outer(x, y)
    total /= max(len(points), 1)
    if eps:
        ridge = eps if eps_scale == "absolute" else max(eps * np.trace(total), 1e-10)
        total += ridge * np.eye(len(total))
    return total


def naive_descriptor(points: np.ndarray, preset: str, eps: float, eps_scale: str = "trace") -> np.ndarray:
    """A preset by hand: sign and square root as the paper writes them, the full matrix, no smoothing."""
    if preset == "average":
        x = points.sum(0) / max(len(points), 1)
    else:
        A = naive_matrix(points, eps, eps_scale)
        matrix = {"bcnn": lambda A: A, "improved_bcnn": SCIPY["sqrt"], "o2p": SCIPY["log"]}[preset](A)
        x = np.real(matrix).ravel()
        if preset != "o2p":
            x = np.sign(x) * np.sqrt(np.abs(x))
    norm = np.linalg.norm(x)
    return x / norm if norm else x


# Smoothing far above the step of finite differences, so that a dead channel and a black image are differentiable there.
SMOOTH = {"signed_sqrt": "signed_sqrt(delta=0.1)", "l2": "l2(length=1e-1)"}


ABSOLUTE = {"eps": 0.1, "eps_scale": "absolute"}


def ridge_of(preset: str) -> float:
    return getattr(Head(preset).pooling, "eps", 0.0)


def thin_option(preset: str, thin: bool | None) -> dict[str, bool | None]:
    """Heads without a matrix function have no such option."""
    return {"thin": thin} if "matrix" in PRESETS[preset].normalize[0] else {}


def goes_thin(head: Head, d: int, n: int) -> bool:
    """Whether the head computes an n x n decomposition and none of d x d."""
    sizes = Sizes()
    with sizes:
        head(torch.rand(1, d, n))
    return sizes.seen == {n}


def images() -> torch.Tensor:
    """Three images: one as usual, one with dead channels, one black."""
    features = relu_features(3, 6, 2, 2)
    features[1, 2:4] = 0
    features[2] = 0
    return features


class Sizes(TorchDispatchMode):
    """Which matrices are decomposed."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten._linalg_eigh.default:
            self.seen.add(args[0].shape[-1])
        return op(*args, **(kwargs or {}))


class Products(TorchDispatchMode):
    """Counts products, as whole ones."""

    count = 0.0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op in (torch.ops.aten.bmm.default, torch.ops.aten.mm.default):
            self.count += args[0].shape[-2] * args[0].shape[-1] * args[1].shape[-1] / 512**3
        return op(*args, **(kwargs or {}))
