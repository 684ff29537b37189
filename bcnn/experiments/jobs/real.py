"""Pooled matrices of real images, for measurements of the matrix function alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...data.contract import TRAIN
from ...pooling.triangle import full_matrix

if TYPE_CHECKING:
    from ..workshop import Workshop
    from .frozen import Source


def real_matrices(shop: Workshop, source: Source, *, eps: float, count: int, scale: str = "trace") -> Tensor:
    """A of training images, evenly spread over the list, in float32, shape (count, d, d).

    Args:
        shop: has the features.
        source: of which network.
        eps: the ridge, relative to `scale`.
        count: of images, at most.
        scale: "trace", as in `bcnn.Head`, or "top", the largest eigenvalue: the paper's is 10^-6 of it.
    """
    rows = shop.stored(source, "bilinear").matrix(TRAIN)
    images = len(rows.rows)
    count = min(count, images)
    wanted = {rows.num_views * (i * images // count) for i in range(count)}
    found, at = [], 0
    for part in rows.parts():
        found += [part[i] for i in range(len(part)) if at + i in wanted]
        at += len(part)
    A = full_matrix(torch.stack(found))
    size = A.diagonal(dim1=-2, dim2=-1).sum(-1) if scale == "trace" else torch.linalg.eigvalsh(A.double())[..., -1]
    A.diagonal(dim1=-2, dim2=-1).add_((eps * size).to(A.dtype)[:, None])
    return A
