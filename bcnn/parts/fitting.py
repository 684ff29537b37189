"""Parts that are fitted on training images before anything is described or trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

# What a part is given, batch after batch, from the start each time it is called: it may go through the images again.
Batches = Callable[[], Iterable[tuple[Any, ...]]]


class FittedPart(nn.Module):
    """Base of parts with a `fit`; what it finds belongs into buffers, which are saved with the network.

    A subclass writes `fit(batches)`, ends it with `self.mark_fitted()`, and begins its `forward` with
    `self.check_fitted()`.
    """

    # Whether a front is fitted on images with boxes: whole ones, each batch (images, boxes), the boxes (B, 4) from 0 to
    # 1 in the square. Images without a box are left out.
    wants_boxes: ClassVar[bool] = False

    fitted: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fitted", torch.tensor(False))

    def fit(self, batches: Batches) -> None:
        """Find the values of the buffers on training images."""
        raise NotImplementedError

    def mark_fitted(self) -> None:
        """Call this at the end of `fit`."""
        self.fitted.fill_(True)

    def check_fitted(self) -> None:
        """Raise an error if the part has not been fitted yet."""
        if not torch.compiler.is_compiling() and not self.fitted.is_meta and not bool(self.fitted):
            raise ValueError(
                f"{type(self).__name__}: expected to be fitted on training images first; bcnn train does so, in Python "
                "call bcnn.fit_parts."
            )


def parts_to_fit(model: nn.Module) -> list[tuple[str, FittedPart]]:
    """The parts that are not fitted yet, in the order in which images go through them."""
    return [(name, m) for name, m in model.named_modules() if isinstance(m, FittedPart) and not bool(m.fitted)]


class _Reached(Exception):  # noqa: N818 - not an error
    def __init__(self, inputs: tuple[Any, ...]):
        super().__init__()
        self.inputs = inputs


@torch.no_grad()
def inputs_of(part: nn.Module, work: Callable[[], Any]) -> tuple[Any, ...]:
    """What a part is called with first while `work` is done; the rest of the work is left."""

    def stop(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _Reached(inputs)

    handle = part.register_forward_pre_hook(stop)
    try:
        work()
    except _Reached as reached:
        return reached.inputs
    finally:
        handle.remove()
    raise ValueError(f"{type(part).__name__}: expected images to go through it, but none does.")
