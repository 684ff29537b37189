"""Watches for losses and gradients that are not finite: names layer and batch, counts, skips or stops.

Paper: Sec. 2.2, "even with the truncated SVD we found that the gradient computation results in numerical exceptions.
Simply ignoring these cases worked well for fine-tuning". Here they are ignored only if asked for, and never in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import NonFiniteTrainingError
from ..metrics import NonFinite
from .module import Trained

REMEDIES = "a lower lr, clip, a larger eps, or backward 'lyapunov' or 'loewner'"
MOST_IN_A_ROW = 20  # steps skipped one after the other before it stops nevertheless


def decide(event: NonFinite, policy: str, num_in_a_row: int) -> None:
    """Raise where the run is to stop."""
    if policy == "stop":
        raise NonFiniteTrainingError(
            f"finetune: {event}. The state before this batch is saved. Go on without such batches by on_nonfinite "
            f"'skip', or begin anew with {REMEDIES}."
        )
    if num_in_a_row >= MOST_IN_A_ROW:
        raise NonFiniteTrainingError(
            f"finetune: {num_in_a_row} batches in a row were not finite, the last one: {event}. The weights are likely "
            f"to be spoilt; begin anew with {REMEDIES}."
        )


def spoilt_network(epoch: int, layer: str, images: Sequence[str]) -> NonFiniteTrainingError:
    """The error for a network that says nothing finite of images that it is not trained on: no step can be skipped."""
    return NonFiniteTrainingError(
        f"finetune: expected finite scores of held-out images after epoch {epoch}, got others, first in {layer}; "
        f"images: {', '.join(images[:3])}. The weights are spoilt: begin anew (--no-resume) with {REMEDIES}."
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
                self._handles.append(module.register_forward_pre_hook(partial(self._begin, name)))
                self._handles.append(module.register_forward_hook(self._end))

    def _begin(self, name: str, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self.at_work.append(_Call(name, module))
        _note_gradient(self.at_work[-1], "input_good", _tensor(inputs))

    def _end(self, _module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
        self.calls.append(self.at_work.pop())
        value = _tensor(output)
        if self.first_bad is None and value is not None and not value.isfinite().all():
            self.first_bad = self.calls[-1]
        _note_gradient(self.calls[-1], "output_good", value)

    def remove(self) -> None:
        """The network is as it was."""
        for handle in self._handles:
            handle.remove()

    def spoiler(self) -> _Call | None:
        """The layer, nearest the loss, that turned a finite gradient of its output into another one of its input."""
        found = [call for call in self.calls if call.output_good and call.input_good is False]
        return found[-1] if found else None


def _note_gradient(call: _Call, field: str, value: Any) -> None:
    """Note later whether the gradient of this tensor, if it has one, is finite."""
    if value is not None and value.requires_grad:
        value.register_hook(lambda grad: setattr(call, field, bool(grad.isfinite().all())))


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
            return "loss", named(watch.first_bad) if watch.first_bad else "the loss"
        watched = {name: p for name, p in network.named_parameters() if p.requires_grad}
        grads = torch.autograd.grad(loss, list(watched.values()), allow_unused=True)
    except ArithmeticError as error:
        if watch.first_bad:
            return "loss", named(watch.first_bad)
        if watch.at_work:
            return "loss", f"{named(watch.at_work[-1])}: {error}"
        return "gradient", str(error)
    finally:
        watch.remove()
    spoiler = watch.spoiler()
    if spoiler is not None:
        return "gradient", named(spoiler)
    if any(call.output_good is False for call in watch.calls):
        return "gradient", "the loss"
    bad = [name for name, grad in zip(watched, grads, strict=True) if grad is not None and not grad.isfinite().all()]
    return ("gradient", bad[0].removeprefix("model.")) if bad else None


def named(call: _Call) -> str:
    """A layer's name and kind."""
    return f"{call.name.removeprefix('model.')} ({type(call.module).__name__})"
