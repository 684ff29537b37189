"""Watches for losses and gradients that are not finite: names layer and batch, counts, skips or stops.

Paper: Sec. 2.2, "even with the truncated SVD we found that the gradient computation results in numerical exceptions.
Simply ignoring these cases worked well for fine-tuning". Here they are ignored only if asked for, and never in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import NonFiniteTrainingError
from ..metrics import NonFinite
from .module import Trained

MOST_IN_A_ROW = 20  # steps skipped one after the other before it stops nevertheless


def decide(event: NonFinite, policy: str, num_in_a_row: int) -> None:
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


def spoilt_network(epoch: int, layer: str, images: Sequence[str]) -> NonFiniteTrainingError:
    """The error for a network that says nothing finite of images that it is not trained on: no step can be skipped."""
    return NonFiniteTrainingError(
        f"finetune: expected finite scores of held-out images after epoch {epoch}, got others, first in {layer}; "
        f"images: {', '.join(images[:3])}. The weights are spoilt: begin anew (--no-resume) with a lower lr, clip, a "
        "larger eps, or backward 'lyapunov' or 'loewner'."
    )


@dataclass
class _Call:
    """A layer at work; whether the gradients of its input and output are finite becomes known later."""

    name: str
    module: nn.Module
    input_good: bool | None = None
    output_good: bool | None = None


class _Watch:
    """Hooks on every layer."""

    def __init__(self, network: nn.Module):
        self.calls: list[_Call] = []
        self.at_work: list[_Call] = []
        self.first_bad: _Call | None = None
        self._handles: list[Any] = []
        for name, module in network.named_modules():
            if not any(True for _ in module.children()):
                call = partial(_Call, name, module)
                self._handles.append(module.register_forward_pre_hook(partial(self._begin, call)))
                self._handles.append(module.register_forward_hook(self._end))

    def _begin(self, call: Callable[[], _Call], module: nn.Module, inputs: tuple[Any, ...]) -> None:
        own = call()
        self.at_work.append(own)
        value = _tensor(inputs)
        if value is not None and value.requires_grad:
            value.register_hook(lambda grad: setattr(own, "input_good", bool(grad.isfinite().all())))

    def _end(self, module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        own = self.at_work.pop()
        self.calls.append(own)
        value = _tensor(output)
        if value is None:
            return
        if self.first_bad is None and not value.isfinite().all():
            self.first_bad = own
        if value.requires_grad:
            value.register_hook(lambda grad: setattr(own, "output_good", bool(grad.isfinite().all())))

    def remove(self) -> None:
        """The network is as it was."""
        for handle in self._handles:
            handle.remove()

    def spoiler(self) -> _Call | None:
        """The layer, nearest the loss, that turned a finite gradient of its output into another one of its input."""
        found = [call for call in self.calls if call.output_good and call.input_good is False]
        return found[-1] if found else None


def _tensor(value: Any) -> Tensor | None:
    """The tensor that goes into a layer or comes out of it; of a matrix that is not formed, its factor."""
    while isinstance(value, tuple) and value:
        value = value[0]
    return value if isinstance(value, Tensor) else None


def find_layer(network: Trained, values: Tensor, labels: Tensor) -> tuple[str, str] | None:
    """Run a batch again and look at every layer: what is not finite, and the first layer to make it so.

    Returns: "loss" or "gradient", and the layer; None if all is finite.
    """
    if not values.isfinite().all():
        return "loss", "the input"
    watch = _Watch(network)
    try:
        with torch.enable_grad():
            loss = functional.cross_entropy(network.scores(values).float(), labels)
        if watch.first_bad or not loss.isfinite():
            return "loss", describe(watch.first_bad) if watch.first_bad else "the loss"
        watched = {name: p for name, p in network.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, list(watched.values()), allow_unused=True)
    except ArithmeticError as error:
        if watch.first_bad:
            return "loss", describe(watch.first_bad)
        if watch.at_work:
            return "loss", f"{describe(watch.at_work[-1])}: {error}"
        return "gradient", str(error)
    finally:
        watch.remove()
    spoiler = watch.spoiler()
    if spoiler is not None:
        return "gradient", describe(spoiler)
    if any(call.output_good is False for call in watch.calls):
        return "gradient", "the loss"
    bad = [name for name, grad in zip(watched, grads, strict=True) if grad is not None and not grad.isfinite().all()]
    return ("gradient", bad[0].removeprefix("model.")) if bad else None


def describe(call: _Call) -> str:
    """A layer's name and kind."""
    return f"{call.name.removeprefix('model.')} ({type(call.module).__name__})"
