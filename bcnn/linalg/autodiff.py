"""What every differentiable function here shares: islands of full precision, and checks that look at values.

Both work under autocast, `torch.func` and `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def full_precision(A: Tensor) -> AbstractContextManager[Any]:
    """An island where autocast does not turn products into bfloat16."""
    device = A.device.type
    if torch.is_autocast_enabled(device):
        return torch.autocast(device, enabled=False)
    return nullcontext()


def should_check(check: bool | None, A: Tensor) -> bool:
    if torch.compiler.is_compiling():
        return False
    return A.device.type == "cpu" if check is None else check


def check_values(check: Callable[..., None], *tensors: Tensor) -> None:
    """Call a check that looks at values, under `torch.func` as well."""
    _OnValues.apply(check, *(t.detach() for t in tensors))


class _OnValues(torch.autograd.Function):
    """Calls a function with plain tensors, whatever transform is at work; computes nothing."""

    @staticmethod
    def forward(check: Callable[..., None], *tensors: Tensor) -> Tensor:
        check(*tensors)
        return tensors[0].new_zeros(tensors[0].shape[:-2])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], check: Any, *tensors: Tensor) -> tuple[Tensor, int]:
        front = (to_front(t, dim, info.batch_size) for t, dim in zip(tensors, in_dims[1:], strict=True))
        return _OnValues.apply(check, *front), 0


def to_front(x: Any, dim: int | None, size: int) -> Any:
    """`x` with the dimension that vmap runs over in front, repeated (as a view) where vmap leaves it alone."""
    if x is None:
        return None
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
