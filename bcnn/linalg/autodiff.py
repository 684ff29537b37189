"""What every differentiable function here shares: islands of full precision, and checks that look at values.

Both work under autocast, `torch.func` and `torch.compile`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from threading import Lock
from typing import Any

import torch
from torch import Tensor


def full_precision(A: Tensor) -> AbstractContextManager[Any]:
    """An island where products of float32 are computed in float32: neither autocast's bfloat16 nor TensorFloat-32.

    Under `torch.compile` the process's own setting of TensorFloat-32 holds, which the compiler cannot change.
    """
    islands: list[AbstractContextManager[Any]] = []
    if A.device.type != "meta" and torch.is_autocast_enabled(A.device.type):
        islands.append(torch.autocast(A.device.type, enabled=False))
    if not torch.compiler.is_compiling() and (_FULL_PRODUCTS.anybody or not products_are_full()):
        islands.append(_FULL_PRODUCTS)
    if len(islands) == 2:
        both = ExitStack()
        for island in islands:
            both.enter_context(island)
        return both
    return islands[0] if islands else nullcontext()


def products_are_full() -> bool:
    """Whether nobody has asked PyTorch for faster, coarser products of float32 (`set_float32_matmul_precision`)."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # set for one backend and not for another
        return False


def may_be_replayed_coarsely(A: Tensor) -> bool:
    """Whether autograd, which runs later, might repeat products of this graph in a lower precision."""
    return A.device.type != "cpu" or _FULL_PRODUCTS.anybody


class _FullProducts:
    """Full products while anybody is inside: the setting belongs to the whole process, so that threads share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._num_inside = 0
        self._before: list[str] = []

    @property
    def anybody(self) -> bool:
        """Whether any thread is inside the context at the moment."""
        return self._num_inside > 0

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                self._before = _read_precision()
                _write_precision(["ieee"] * len(self._before))
            self._num_inside += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0:
                _write_precision(self._before)


_FULL_PRODUCTS = _FullProducts()
# Each has a setting of its own since torch 2.9; before, there is one for all.
_BACKENDS = [
    backend.matmul
    for backend in (torch.backends.cuda, torch.backends.mkldnn)
    if hasattr(getattr(backend, "matmul", None), "fp32_precision")
]


def _read_precision() -> list[str]:
    if not _BACKENDS:  # before torch 2.9
        return [torch.get_float32_matmul_precision()]
    return [backend.fp32_precision for backend in _BACKENDS]


def _write_precision(values: list[str]) -> None:
    if not _BACKENDS:
        torch.set_float32_matmul_precision({"ieee": "highest"}.get(values[0], values[0]))
    for backend, value in zip(_BACKENDS, values, strict=False):
        backend.fp32_precision = value


def should_check(check: bool | None, A: Tensor) -> bool:
    """Whether to look at values: never where there are none, or where the looking would be recorded."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or A.device.type == "meta" or _is_fake(A):
        return False
    return A.device.type == "cpu" if check is None else check


def _is_fake(A: Tensor) -> bool:
    """Whether it is a tensor of an export, without numbers; asked of the name, for the import takes a second."""
    return any(kind.__name__ == "FakeTensor" for kind in type(A).__mro__)


def check_values(check: Callable[..., None], *tensors: Tensor) -> None:
    """Call a check that looks at values, under `torch.func` as well."""
    plain = (t.detach() for t in tensors)
    if is_transformed():
        apply(_OnValues, check, *plain)
    else:
        check(*plain)


def may_branch(x: Tensor) -> bool:
    """Whether code may go by values: where they are there, on the CPU, and nobody records the way that is taken."""
    return should_check(None, x) and not is_transformed() and not is_watched(x)


def is_watched(x: Tensor) -> bool:
    """Whether somebody records or replaces operations (`make_fx`, fake tensors): other threads know nothing of it."""
    return type(x) not in (Tensor, torch.nn.Parameter) or bool(torch._C._len_torch_dispatch_stack())


def is_transformed() -> bool:
    """Whether a transform of `torch.func` is at work, or might be: old versions of torch do not say."""
    active = getattr(torch._C, "_are_functorch_transforms_active", None)
    return active is None or bool(active())


def forward_depth() -> int | None:
    """How many forward-mode transforms of `torch.func` are in each other; None where torch has another inside."""
    try:
        from torch._C._functorch import TransformType
        from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

        return sum(own.key() == TransformType.Jvp for own in retrieve_all_functorch_interpreters())
    except (ImportError, AttributeError):
        return None


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply(*arguments)``, which torch leaves without types."""
    call: Any = function.apply
    return call(*arguments)


class BatchedFunction(torch.autograd.Function):
    """A Function of batches: what `torch.func.vmap` runs over becomes one more leading dimension of all tensors."""

    @classmethod
    def vmap(cls, info: Any, in_dims: tuple[int | None, ...], *arguments: Any) -> tuple[Any, Any]:
        """The results, and that their first dimension is the new one."""
        return apply(cls, *to_front(info, in_dims, arguments)), 0


def to_front(info: Any, in_dims: tuple[int | None, ...], arguments: tuple[Any, ...]) -> list[Any]:
    """Tensors with the dimension that vmap runs over in front, repeated (as a view) where vmap leaves one alone."""

    def one(x: Any, dim: int | None) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)

    return [one(x, dim) for x, dim in zip(arguments, in_dims, strict=True)]


class _OnValues(BatchedFunction):
    """Calls a function with plain tensors, whatever transform is at work; computes nothing."""

    @staticmethod
    def forward(check: Callable[..., None], *tensors: Tensor) -> Tensor:
        check(*tensors)
        return tensors[0].new_zeros(tensors[0].shape[:-2])

    @staticmethod
    def setup_context(ctx: Any, _: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)
