"""One file per engine: the way in which a network's layers are computed where no gradients are wanted.

An engine is a function of layers in a row and of images, or maps, that go into the first of them. What it cannot do
better, it leaves to torch. Training is always torch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from ...errors import unknown_name
from . import ncnn, winograd

ENGINES: dict[str, Callable[[nn.Sequential, Tensor], Tensor]] = {
    "winograd": winograd.run,  # fewer multiplications, on CPUs in float32
    "ncnn": ncnn.run,  # the same by a package made for it: bcnn[ncnn]
    "torch": nn.Sequential.__call__,
}
REQUIRES: dict[str, Callable[[], None]] = {"ncnn": ncnn.require}  # an ImportError in words where a package is missing
DEFAULT_ENGINE = "winograd"

_chosen: ContextVar[str] = ContextVar("engine", default="torch")


def check(who: str, name: str) -> None:
    """Raise in words for an engine that is not there, or whose package is not."""
    if name not in ENGINES:
        raise unknown_name(who, "engine", name, ENGINES)
    REQUIRES.get(name, _nothing)()


def _nothing() -> None:
    pass


def usable() -> list[str]:
    """The engines whose packages are here."""
    names = []
    for name in ENGINES:
        with suppress(ImportError):
            check("network", name)
            names.append(name)
    return names


@contextmanager
def using(name: str) -> Iterator[None]:
    """Backbones that are called inside compute with this engine."""
    check("network", name)
    before = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(before)


def run(layers: nn.Sequential, images: Tensor) -> Tensor:
    """The output of the layers, by the engine that was chosen; by torch where gradients or a recording are wanted."""
    torchs_own = torch.is_grad_enabled() or torch.compiler.is_compiling()
    return ENGINES["torch" if torchs_own else _chosen.get()](layers, images)
