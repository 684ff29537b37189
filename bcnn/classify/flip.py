"""Test-time averaging over views of the same image, such as the image and its mirror image.

Paper: Sec. 3.2, predictions on the image and its flip are averaged.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


def average_views(scores: Tensor, groups: Any) -> Tensor:
    """Mean scores of the rows of each group, in ascending order of the groups, shape (num_groups, k).

    Args:
        scores: one row a view, shape (n, k).
        groups: whole numbers (or any labels that sort), equal for views of one image, shape (n,).

    Example:
        >>> average_views(torch.tensor([[1.0], [3.0], [5.0]]), [0, 0, 1])
        tensor([[2.],
                [5.]])
    """
    _, index = np.unique(np.asarray(groups), return_inverse=True)
    if scores.ndim != 2 or index.shape != scores.shape[:1]:
        raise ValueError(
            f"average_views: expected scores (n, k) and n groups, got {tuple(scores.shape)} and {index.shape}."
        )
    places = torch.from_numpy(index)
    total = scores.new_zeros(int(index.max(initial=-1)) + 1, scores.shape[1]).index_add_(0, places, scores)
    return total / torch.bincount(places)[:, None]
