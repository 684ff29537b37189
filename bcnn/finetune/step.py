"""One step: the gradient of a batch, shared among processes, a few images at a time.

Every process goes forward and backward through all of its parts, whatever comes out, and meets the others in the last
one's backward pass and once more for the sums: a number that is not finite in one of them reaches all, and none waits
for another in vain.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

from ..data.contract import Sample
from ..descriptors.team import Team
from ..errors import GradientExceptionWarning
from . import guard
from .module import Trained
from .plan import Item
from .source import Source

if TYPE_CHECKING:
    from lightning_fabric import Fabric

T = TypeVar("T")


@dataclass(frozen=True)
class Images:
    """Samples, where their pixels or maps come from, and what is wanted of their scores."""

    samples: Sequence[Sample]
    source: Source
    own_loss: Callable[[Tensor, Sequence[Item]], Tensor] | None = None  # summed over scores (B, k); None: cross-entropy

    def labels(self, items: Sequence[Item]) -> Tensor:
        """The classes, shape (B,)."""
        return torch.tensor([self.samples[number].label for number, _ in items])

    def loss(self, scores: Tensor, items: Sequence[Item]) -> Tensor:
        """What is to become small, summed over the images."""
        if self.own_loss is not None:
            return self.own_loss(scores, items)
        return functional.cross_entropy(scores, self.labels(items).to(scores.device), reduction="sum")


@dataclass(frozen=True)
class Batch:
    """The share of one process, a few images at a time."""

    num_images: int  # over all processes
    counts: bool  # else its image is there to take part, and another process has it, too
    parts: Sequence[Sequence[Item]]


@dataclass(frozen=True)
class Outcome:
    """What a step came to, over all processes."""

    loss: float  # the mean
    num_right: int
    norm: float  # of the gradient
    num_exceptions: int
    stop: bool  # a process was told to

    @property
    def is_finite(self) -> bool:
        """Whether there is a gradient to go along."""
        return self.norm < float("inf")


class Stepper:
    """Computes gradients of a network, which is given wrapped by the engine and bare; others make steps of them."""

    def __init__(self, fabric: Fabric, network: Any, trained: Trained, images: Images):
        self.fabric, self.network, self.trained, self.images = fabric, network, trained, images
        self.parameters = [p for p in trained.parameters() if p.requires_grad]
        self.wait_s = 0.0  # for input, in all
        self.num_exceptions = 0  # of this step and process
        self.inputs: list[Tensor] = []

    def gradient(self, batch: Batch, values: Iterator[Tensor], told_to_stop: bool) -> Outcome:
        """Leaves the gradient of the mean loss in the parameters."""
        self.inputs, self.num_exceptions = [], 0
        weight = self.fabric.world_size / batch.num_images if batch.counts else 0.0  # processes are averaged
        sums = torch.zeros(5, dtype=torch.float64)  # loss, right, failed, exceptions, told to stop
        for part in batch.parts:
            began = time.monotonic()
            self.inputs.append(next(values))
            self.wait_s += time.monotonic() - began
            self._one_part(self.inputs[-1], part, weight, sums, last=part is batch.parts[-1])
        sums[3], sums[4] = self.num_exceptions, told_to_stop
        sums = total(self.fabric, sums)
        norm = float("nan") if sums[2] else self._norm()
        return Outcome(float(sums[0]) / batch.num_images, int(sums[1]), norm, int(sums[3]), bool(sums[4]))

    def _one_part(self, values: Tensor, part: Sequence[Item], weight: float, sums: Tensor, *, last: bool) -> None:
        labels = self.images.labels(part).to(self.fabric.device)
        several = self.fabric.world_size > 1
        with self.fabric.no_backward_sync(self.network, enabled=several and not last):
            scores = self.network(values)
            loss = self.images.loss(scores.float(), part)
            if weight:
                sums[0] += float(loss.detach())
                sums[1] += int((scores.argmax(-1) == labels).sum())
            if not loss.isfinite():
                sums[2] += 1
                loss = spoilt(self.parameters)
            try:
                self.fabric.backward(loss * weight)
            except ArithmeticError:
                if several:  # the others wait for a gradient that does not come: better to end
                    raise
                sums[2] += 1

    def _norm(self) -> float:
        return float(torch.nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None]))

    def where_not_finite(self, batch: Batch) -> tuple[str, str, tuple[str, ...]]:
        """What it is, the layer that made it and the images; the parameters are left without a gradient."""
        found = None
        with self.fabric.autocast():
            for part, values in zip(batch.parts, self.inputs, strict=True):
                where = guard.find_layer(self.trained, values, self.images.labels(part).to(values.device))
                if where is not None:
                    found = (*where, tuple(self.images.samples[number].name for number, _ in part))
                    break
        first = next((one for one in gathered(self.fabric, found) if one), None)
        return first or ("gradient", "the sum over the batch", ())

    @contextmanager
    def counting_exceptions(self) -> Iterator[None]:
        """Gradient rules warn of infinite and NaN entries each time; in a training they are counted."""
        with warnings.catch_warnings():
            warnings.simplefilter("always", GradientExceptionWarning)
            show = warnings.showwarning

            def count(message: Any, *arguments: Any, **options: Any) -> None:
                if isinstance(message, GradientExceptionWarning) and message.num_matrices:
                    self.num_exceptions += message.num_matrices
                else:
                    show(message, *arguments, **options)

            warnings.showwarning = count
            yield


def spoilt(parameters: Sequence[Tensor]) -> Tensor:
    """A loss that is NaN, and so is its gradient, for all parameters; no other rule is asked for it."""
    return torch.stack([p.sum() for p in parameters]).sum() * float("nan")


def total(fabric: Fabric, sums: Tensor) -> Tensor:
    """Add up the sums of all processes."""
    if fabric.world_size == 1:
        return sums
    return fabric.all_reduce(sums.to(fabric.device), reduce_op="sum").cpu()  # type: ignore[union-attr]


def gathered(fabric: Fabric, value: T) -> list[T]:
    """The values of all processes."""
    return Team(fabric.global_rank, fabric.world_size).gather(value)
