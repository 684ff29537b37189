"""What a scorer promises the network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor, nn

from ..linalg.operand import Factored
from ..parts.shapes import Shape, Vector


class Scorer(nn.Module):
    """From what a head makes of images to the scores of the classes.

    A subclass takes `inputs`, the shape that it is given as a tuple of one, and `num_classes`, then options of its own.

    Args:
        inputs: the shape of what it is given.
        num_classes: how many scores it gives.
    """

    takes: ClassVar[type[Shape]] = Vector  # descriptors; `Spd`: pooled matrices that are not formed, no normalizations
    takes_normalized: ClassVar[bool] = False  # `Spd` after normalizations, too: symmetric, formed where need be
    can_start: ClassVar[bool] = False  # whether it can take over a linear classifier on descriptors (`start_from`)
    is_linear: ClassVar[bool] = False  # whether it is then that very classifier, so that SVMs can take its place

    looks_at_descriptors: ClassVar[bool] = False  # whether `look_at` has to come before `start_from`

    num_classes: int

    def forward(self, given: Tensor | Factored) -> Tensor:
        """Return the scores, shape (B, num_classes)."""
        raise NotImplementedError

    def look_at(self, descriptors: Iterable[Tensor]) -> None:
        """Find what it has to know from the descriptors of training images, some rows (n, D) at a time."""
        raise NotImplementedError

    def start_from(self, weight: Tensor, bias: Tensor) -> None:
        """Take over a linear classifier on descriptors, (k, D) and (k,), as nearly as it can.

        Fine-tuning starts there, from a logistic regression; a scorer that cannot starts as it was built.
        """
        raise NotImplementedError
