"""Pictures and their mirror images through a network, as one batch.

Paper: Sec. 3.2, an image and its flipped copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

import numpy
import torch
from torch import Tensor

from ..data.preprocess import Preprocessing
from .engines import DEFAULT_ENGINE, using


@torch.inference_mode()
def in_views(
    pictures: Sequence[numpy.ndarray],
    preprocessing: Preprocessing,
    network: Callable[[Tensor], Sequence[Tensor]],
    *,
    flips: bool,
    precision: str = "float32",
    device: str = "cpu",
    engine: str = DEFAULT_ENGINE,
) -> list[Tensor]:
    """What a network computes from squares of pixels: each of its results on the CPU, shape (images, views, ...).

    With `flips` the mirror image is a second view. Heads and scorers compute in float32, whatever the precision.
    """
    images = to_batch(pictures, preprocessing, device, flips=flips)
    with autocast(precision, device), using(engine):
        results = network(images)
    return [one.unflatten(0, (-1, len(pictures))).transpose(0, 1).cpu().contiguous() for one in results]


def to_batch(
    pictures: Sequence[numpy.ndarray], preprocessing: Preprocessing, device: str = "cpu", *, flips: bool = False
) -> Tensor:
    """Pixels as the network takes them, shape (B, 3, H, W), laid out channels last; values as `Preprocessing` gives.

    With `flips` all mirrored pictures follow, shape (2B, 3, H, W): turned as bytes, which are quickly moved.
    """
    views = [*pictures, *(picture[:, ::-1] for picture in pictures)] if flips else pictures
    pixels = torch.from_numpy(numpy.stack(views)).to(device)  # (B, H, W, 3)
    return preprocessing.to_values(pixels).movedim(-1, 1)


def autocast(precision: str, device: str) -> torch.autocast | nullcontext[None]:
    """Compute in bfloat16 where that is wanted."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
