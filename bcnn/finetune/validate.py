"""Loss and accuracy on images that are held out, scores averaged over the views, as at the test."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

from ..descriptors.extract import batches
from . import guard
from .module import Trained
from .step import Images, gathered, total

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class HeldOut(NamedTuple):
    """What all processes together have found."""

    loss: float
    accuracy: float
    stop: bool  # told to, and not finished
    problem: tuple[str, tuple[str, ...]] | None  # a layer and images, where scores were not finite


@torch.no_grad()
def validate(
    fabric: Fabric, trained: Trained, images: Images, *, flips: bool, batch: int, told_to_stop: Callable[[], bool]
) -> HeldOut:
    """Every process takes its share, outside of the wrapper, which wants all of them to call it equally often."""
    trained.eval()
    views = (False, True) if flips else (False,)
    numbers = range(fabric.global_rank, len(images.samples), fabric.world_size)
    parts = list(batches(((number, False) for number in numbers), batch))
    items = [(number, view) for number in numbers for view in views]
    coming = images.source.batches(items, [len(views) * len(part) for part in parts])
    sums = torch.zeros(3, dtype=torch.float64)  # loss, right, told to stop
    problem = None
    for part, values in zip(parts, coming, strict=False):
        if told_to_stop():
            sums[2] = 1
            break
        labels = images.labels(part).to(fabric.device)
        with fabric.autocast():
            scores = trained(values).float().unflatten(0, (-1, len(views))).mean(1)
        loss = functional.cross_entropy(scores, labels, reduction="sum")
        if not loss.isfinite() and problem is None:
            with fabric.autocast():
                where = guard.find_layer(trained, values, labels.repeat_interleave(len(views)))
            problem = (where[1] if where else "the scores", tuple(images.samples[number].name for number, _ in part))
        sums[0] += float(loss)
        sums[1] += int((scores.argmax(-1) == labels).sum())
    sums = total(fabric, sums)
    problems = [one for one in gathered(fabric, problem) if one is not None]
    count = len(images.samples)
    return HeldOut(float(sums[0]) / count, float(sums[1]) / count, bool(sums[2]), problems[0] if problems else None)
