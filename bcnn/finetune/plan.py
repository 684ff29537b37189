"""What is drawn at random, as a function of seed and step: nothing to store, the same however often it is interrupted.

Every process knows the whole plan and takes its share of each batch, so how many there are does not change the batches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import torch

from ..data.contract import TEST as HELD_OUT
from ..data.contract import Sample, split_by_stratum
from ..descriptors.extract import batches
from .config import FinetuneConfig

Item = tuple[int, bool]  # number of the image, and whether it is mirrored


def hold_out(samples: Sequence[Sample], share: float, seed: int) -> tuple[list[Sample], list[Sample]]:
    """Training images, and those cut out of every class for validation: none of a class with a single image."""
    if share == 0:
        return list(samples), []
    split = split_by_stratum(samples, test_share=share, seed=seed)
    kept = [sample for sample, cut in zip(samples, split, strict=True) if cut.split != HELD_OUT]
    return kept, [sample for sample, cut in zip(samples, split, strict=True) if cut.split == HELD_OUT]


@dataclass(frozen=True)
class Plan:
    """The batches of every epoch."""

    num_images: int
    batch_size: int
    flips: bool
    seed: int

    @property
    def num_batches(self) -> int:
        """The number of batches per epoch; the last one may be smaller."""
        return -(-self.num_images // self.batch_size)

    def epoch(self, number: int) -> list[list[Item]]:
        """Every image once, in a random order, mirrored or not at random."""
        rng = numpy.random.default_rng((self.seed, number))
        order = rng.permutation(self.num_images).tolist()
        mirrored = (rng.random(self.num_images) < 0.5).tolist() if self.flips else [False] * self.num_images
        return list(batches(zip(order, mirrored, strict=True), self.batch_size))

    def seed_step(self, epoch: int, batch: int, rank: int) -> None:
        """Torch's own random numbers, for dropout and the like."""
        state = numpy.random.SeedSequence((self.seed, epoch, batch, rank)).generate_state(1, numpy.uint64)
        torch.manual_seed(int(state[0]) >> 1)


def share_of(batch: Sequence[Item], rank: int, size: int) -> tuple[list[Item], int]:
    """The part of one of `size` processes, and how many of its images count.

    A process that there is no image for takes the first one and counts none: all have to take part in the step.
    """
    own = list(batch[rank::size])
    return (own, len(own)) if own else ([batch[0]], 0)


def learning_rate(config: FinetuneConfig, epochs_done: float) -> float:
    """The learning rate after so many epochs; the middle of a batch is taken for it."""
    if epochs_done < config.warmup_epochs:
        return config.lr * epochs_done / config.warmup_epochs
    if config.schedule == "cosine":
        share = (epochs_done - config.warmup_epochs) / (config.epochs - config.warmup_epochs)
        return config.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
    if config.schedule == "step":
        return config.lr * config.step_factor ** int(epochs_done // config.step_epochs)
    return config.lr
