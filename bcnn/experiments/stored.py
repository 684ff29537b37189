"""Pooled features as they are stored, and the descriptors that heads make of them.

The network sees each image once for all heads: what is stored is A of Eq. (1) without its ridge, and a head adds the
ridge and the normalizations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..parts.shapes import Maps, Spd
from ..pooling import POOLINGS
from ..pooling.head import Head, HeadConfig, make_config
from ..pooling.triangle import dimension_of, full_matrix


def plain_head(pooling: str) -> HeadConfig:
    """The pooling alone, as it is stored: descriptors of all heads with this pooling can be made from it."""
    part = POOLINGS.make(pooling)
    return make_config(HeadConfig(part.stored_as or pooling, ()))  # type: ignore[arg-type]


def num_channels(head: Head, width: int) -> int:
    """The number of channels of features whose stored form has `width` numbers."""
    return dimension_of(width) if _is_matrix(head) else width


def _is_matrix(head: Head) -> bool:
    return isinstance(head.pooling.shape(Maps(1)), Spd)


@torch.inference_mode()
def describe_stored(head: Head, stored: Tensor) -> Tensor:
    """What the head would have made of the features themselves, shape (rows, d).

    Args:
        head: its pooling is what the features were stored with.
        stored: the triangles of A without a ridge, or vectors, shape (rows, width).
    """
    pooled = full_matrix(stored) if _is_matrix(head) else stored
    return head.normalize_matrix(head.pooling.complete(pooled))
