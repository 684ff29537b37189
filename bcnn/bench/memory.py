"""How much memory tensors take while something is computed: the same number on every machine."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class _Watch(TorchDispatchMode):
    """Counts the bytes of what operations return, as long as anything holds it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {self._storage(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)}
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, Tensor) and self._storage(value) not in given:
                self._add(value)
        return result

    def _storage(self, value: Tensor) -> int:
        return int(value.untyped_storage()._cdata)

    def _add(self, value: Tensor) -> None:
        storage, key = value.untyped_storage(), self._storage(value)
        if key not in self._known:
            self._known.add(key)
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._drop, key, storage.nbytes()).atexit = False

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def peak_bytes(work: Callable[[], object]) -> int:
    """The most bytes that tensors made by `work` held at once; what was there before does not count.

    Buffers inside a single operation, such as LAPACK's, are not seen.

    Example:
        >>> import torch
        >>> a = torch.ones(1000)
        >>> peak_bytes(lambda: (a + 1) * 2)  # both results, of 4000 bytes, are there at once
        8000
        >>> peak_bytes(lambda: a.view(10, 100))
        0
    """
    watch = _Watch()
    with watch:
        work()
    return watch.most
