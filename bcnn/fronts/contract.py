"""What a part before the networks promises them."""

from __future__ import annotations

from torch import Tensor, nn


class Front(nn.Module):
    """From images to images, or to several crops of each, which the networks then see in the place of them.

    The descriptors of the crops of an image are put side by side.
    """

    num_crops: int = 1

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, 3, H, W) as crops (B, num_crops, 3, H', W')."""
        raise NotImplementedError
