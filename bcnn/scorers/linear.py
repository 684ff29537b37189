"""The linear classifier on descriptors: the paper's last layer, and the form of its SVMs.

Paper: Sec. 3.2, "a k-way linear classifier"; one-vs-rest SVMs in its place for the results.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..linalg.operand import Factored
from ..parts.shapes import Shape, Vector, expect
from .contract import Scorer


class LinearScorer(Scorer):
    """A linear classifier: the scores are W x + b."""

    can_start: ClassVar[bool] = True
    is_linear: ClassVar[bool] = True

    def __init__(self, inputs: tuple[Shape, ...], num_classes: int):
        super().__init__()
        start = nn.Linear(expect("linear", Vector, inputs[0]).length, num_classes)
        self.num_classes = num_classes
        self.weight, self.bias = start.weight, start.bias

    def forward(self, given: Tensor | Factored) -> Tensor:
        """Return the scores (B, k) of descriptors (B, D)."""
        assert isinstance(given, Tensor)
        return functional.linear(given, self.weight, self.bias)

    @torch.no_grad()
    def start_from(self, weight: Tensor, bias: Tensor) -> None:
        """Take over the weights and biases of a trained classifier."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.num_classes}"
