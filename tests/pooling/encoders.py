"""Poolings that are fitted, ready to use."""

from __future__ import annotations

import torch
from torch import Tensor

from bcnn.parts.shapes import Maps
from bcnn.pooling import POOLINGS


def scattered(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Features of both signs around a few places, so that there is something to find."""
    generator = torch.Generator().manual_seed(seed)
    places = 3 * torch.randn(5, shape[1], generator=generator, dtype=torch.float64)
    chosen = torch.randint(5, (shape[0], *shape[2:]), generator=generator)
    noise = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (places[chosen].movedim(-1, 1) + noise).to(dtype)


def fitted(text: str, features: Tensor):
    """The pooling, fitted on the features if it has to be, in their precision."""
    part = POOLINGS.make(text, inputs=(Maps(features.shape[1]),))
    if POOLINGS[POOLINGS.read(text).name].needs_fit:
        part.fit(lambda: [(some,) for some in features.split(2)])
    return part.to(features.dtype)
