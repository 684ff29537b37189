"""Watches for losses and gradients that are not finite: names layer and batch, counts, skips or stops.

Paper: Sec. 2.2, "even with the truncated SVD we found that the gradient computation results in numerical exceptions.
Simply ignoring these cases worked well for fine-tuning". Here they are ignored only if asked for, and never in silence.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import NonFiniteTrainingError

MOST_IN_A_ROW = 20  # steps skipped one after the other before it stops nevertheless


@dataclass(frozen=True)
class Event:
    """One step that was not finite."""

    epoch: int
    batch: int  # of the epoch, from 0
    what: str  # "loss" or "gradient"
    layer: str
    images: tuple[str, ...]  # of the part of the batch in which it was seen

    def __str__(self) -> str:
        named = ", ".join(self.images[:3]) + (f" and {len(self.images) - 3} more" if len(self.images) > 3 else "")
        return (
            f"{self.what} not finite in epoch {self.epoch}, batch {self.batch}, first in {self.layer}; images: {named}"
        )

    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "images": list(self.images)}


def decide(event: Event, policy: str, num_in_a_row: int) -> None:
    """Raise where the run is to stop."""
    if policy == "stop":
        raise NonFiniteTrainingError(
            f"finetune: {event}. The state before this batch is saved. Go on without such batches by on_nonfinite "
            "'skip', or begin anew with a lower lr, clip, a larger eps, or backward 'lyapunov' or 'loewner'."
        )
    if num_in_a_row >= MOST_IN_A_ROW:
        raise NonFiniteTrainingError(
            f"finetune: {num_in_a_row} batches in a row were not finite, the last one: {event}. The weights are likely "
            "to be spoilt; begin anew with a lower lr, clip, a larger eps, or backward 'lyapunov' or 'loewner'."
        )


def find_layer(network: nn.Module, values: Tensor, labels: Tensor) -> tuple[str, str] | None:
    """Run a batch again and look at every layer: what is not finite, and the first layer to make it so.

    Returns: "loss" or "gradient", and the layer; None if all is finite.
    """
    if not values.isfinite().all():
        return "loss", "the input"
    finite: list[tuple[str, Any]] = []  # in order of computation; the gradient of the output becomes known later
    seen: dict[int, bool] = {}
    handles = []
    bad: list[str] = []

    def look(name: str, module: nn.Module, output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        number = len(finite)
        finite.append((name, module))
        if not bad and not output.isfinite().all():
            bad.append(describe(name, module))
        if output.requires_grad:
            output.register_hook(lambda grad: seen.__setitem__(number, bool(grad.isfinite().all())))

    for name, module in network.named_modules():
        if not any(True for _ in module.children()):
            handles.append(module.register_forward_hook(lambda m, i, o, name=name: look(name, m, o)))
    try:
        with torch.enable_grad():
            loss = functional.cross_entropy(network(values), labels)
        if bad or not loss.isfinite():
            return "loss", bad[0] if bad else "the loss"
        grads = torch.autograd.grad(loss, [p for p in network.parameters() if p.requires_grad], allow_unused=True)
    except ArithmeticError as error:
        return "loss", f"{describe(*finite[-1]) if finite else 'the input'}, then: {error}"
    finally:
        for handle in handles:
            handle.remove()
    spoilt = [number for number, good in seen.items() if not good]
    if spoilt:  # the layer after the last one whose output has such a gradient made it
        after = max(spoilt) + 1
        return "gradient", describe(*finite[after]) if after < len(finite) else "the loss"
    if all(grad is None or grad.isfinite().all() for grad in grads):
        return None
    names = [name for name, p in network.named_parameters() if p.requires_grad]
    return "gradient", next(n for n, g in zip(names, grads, strict=True) if g is not None and not g.isfinite().all())


def describe(name: str, module: nn.Module) -> str:
    """A layer's name and kind."""
    return f"{name.removeprefix('model.')} ({type(module).__name__})"
