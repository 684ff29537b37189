"""Features of every shape, and the naive reference: a loop over locations in float64."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

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
