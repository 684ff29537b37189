r"""Boxes of things in images: found in a map, widened, cut out.

Legend: boxes (B, 4), left, top, right, bottom, from 0 to 1 in the square that a network sees.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def box_of_map(p: Tensor) -> Tensor:
    r"""The box around what a map shows, by its moments: mean -+ 2 standard deviations, inside of the image.

    For an ellipse of equal values that is its bounding box; stray values far away change little. Smooth, so that what
    made the map can learn from what was cut out.

    Args:
        p: how much of the thing is where, >= 0, shape (B, H, W).

    Returns:
        Boxes, shape (B, 4); the whole image where the map is zero throughout.
    """
    p = p.to(torch.promote_types(p.dtype, torch.float32))
    p = p + 1e-6 * p.amax((-2, -1), keepdim=True).clamp_min(1e-6)
    p = p / p.sum((-2, -1), keepdim=True)
    low, high = [], []
    for along in (p.sum(-2), p.sum(-1)):  # x, then y
        size = along.shape[-1]
        places = (torch.arange(size, device=p.device, dtype=p.dtype) + 0.5) / size
        mean = (along * places).sum(-1)
        variance = (along * (places - mean[:, None]).square()).sum(-1) + 1 / (12 * size**2)  # of the pixels themselves
        low.append((mean - 2 * variance.sqrt()).clamp(0, 1))
        high.append((mean + 2 * variance.sqrt()).clamp(0, 1))
    return torch.stack([*low, *high], -1)


def widened(boxes: Tensor, margin: float) -> Tensor:
    """Boxes with so much around them on every side, relative to their size, inside of the image."""
    low, high = boxes.split(2, -1)
    around = margin * (high - low)
    return torch.cat([low - around, high + around], -1).clamp(0, 1)


def cut_out(images: Tensor, boxes: Tensor, size: tuple[int, int] | None = None) -> Tensor:
    """What is in the boxes, brought to one size by bilinear interpolation; the whole box gives the image back.

    Args:
        images: shape (B, C, H, W).
        boxes: shape (B, 4).
        size: of the result; None: that of the images.
    """
    low, high = boxes.to(images.dtype).split(2, -1)
    # From (-1, 1) in the crop to (-1, 1) in the image, x and y.
    scale, shift = high - low, low + high - 1
    theta = torch.cat([torch.diag_embed(scale), shift[..., None]], -1)  # (B, 2, 3)
    grid = functional.affine_grid(
        theta, [images.shape[0], images.shape[1], *(size or images.shape[-2:])], align_corners=False
    )
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def inside(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """1 where the middle of a pixel lies in the box, else 0, shape (B, H, W)."""
    marks = []
    for side, low, high in ((size[1], 0, 2), (size[0], 1, 3)):
        places = (torch.arange(side, device=boxes.device, dtype=boxes.dtype) + 0.5) / side
        marks.append((places >= boxes[:, low, None]) & (places <= boxes[:, high, None]))
    return (marks[1][:, :, None] & marks[0][:, None, :]).to(boxes.dtype)


def segment_in_boxes(images: Tensor, boxes: Tensor, *, num_rounds: int = 5, num_bins: int = 8) -> Tensor:
    """What is foreground in images of which the boxes are known, from 0 to 1, shape (B, H, W): a simple GrabCut.

    Everything outside of a box is background. Inside, histograms of the colours of foreground and background, first of
    the inside and the outside, say what a pixel is, smoothed over its neighbours; then they are counted anew. Where
    less than a tenth of a box is left, nothing is to be told by colours, and the whole box is foreground.

    Args:
        images: any scale, shape (B, 3, H, W).
        boxes: shape (B, 4).
        num_rounds: how often the colours are counted.
        num_bins: per channel of colour.
    """
    low, high = (f((-2, -1), keepdim=True) for f in (images.amin, images.amax))
    levels = ((images - low) / (high - low).clamp_min(1e-12) * num_bins).long().clamp(0, num_bins - 1)
    bins = (levels[:, 0] * num_bins + levels[:, 1]) * num_bins + levels[:, 2]  # (B, H, W)
    within = inside(boxes.to(images.dtype), (images.shape[-2], images.shape[-1]))

    def share(weights: Tensor) -> Tensor:
        """How much of the weights is in the bin of each pixel."""
        counts = weights.new_zeros(len(weights), num_bins**3).scatter_add(1, bins.flatten(1), weights.flatten(1))
        total = weights.sum((-2, -1))[:, None, None] + 1
        return (counts + 0.1).gather(1, bins.flatten(1)).view_as(weights) / total

    p = within
    for _ in range(num_rounds):
        odds = (share(p) / share(1 - p)).log()
        odds = functional.avg_pool2d(odds[:, None], 5, 1, 2, count_include_pad=False)[:, 0]
        p = (2 * odds).sigmoid() * within
    kept = p.sum((-2, -1)) / within.sum((-2, -1)).clamp_min(1)
    return torch.where((kept < 0.1)[:, None, None], within, p)
