"""What a scorer promises the network."""

from __future__ import annotations

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
    can_start: ClassVar[bool] = False  # whether it can take over a linear classifier on descriptors (`start_from`)
    is_linear: ClassVar[bool] = False  # whether it is then that very classifier, so that SVMs can take its place

    num_classes: int

    def forward(self, given: Tensor | Factored) -> Tensor:
        """Scores, shape (B, num_classes)."""
        raise NotImplementedError

    def start_from(self, weight: Tensor, bias: Tensor) -> None:
        """Take over a linear classifier on descriptors, (k, D) and (k,), as nearly as it can.

        Fine-tuning starts there, from a logistic regression; a scorer that cannot starts as it was built.
        """
        raise NotImplementedError
