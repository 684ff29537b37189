"""Convolutions of 3 x 3 by ncnn, a library made for them: ``pip install bcnn[ncnn]``, 11 MB.

It is Winograd's method as in `winograd`, with transforms written for the processor instead of products of matrices, and
with tiles of 8 x 8 where channels are few: VGG-16 takes about half the time that `winograd` takes. Whole runs of such
convolutions, with relu and pooling among them, are given away; what lies between is done by `winograd`.

Paper: none; the features of Sec. 3.2 in less time. Errors are those of `winograd`, 1e-6 of the numbers.
"""

from __future__ import annotations

import math
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from . import winograd
from .parallel import in_parts

STRIP_BYTES = 2**23  # of the widest map of a strip of rows
MAGIC = 7767517  # the first line of ncnn's own format


def require() -> None:
    """Raise in words unless the package is here."""
    try:
        import ncnn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"engine: expected the package ncnn, got: {error}; run: pip install 'bcnn[ncnn]', or take --engine "
            "winograd."
        ) from None


def run(layers: nn.Sequential, images: Tensor) -> Tensor:
    """The output of layers in a row: runs of 3 x 3 convolutions by ncnn, the others as `winograd` does them."""
    require()
    steps = _steps(layers) if winograd.is_plain(images) and len(images) and bool(images.sum().isfinite()) else []
    if not any(isinstance(step, Run) for step in steps):
        return winograd.run(layers, images)
    return in_parts(partial(_through, steps), images, most=1)


class _Room(threading.local):
    """Memory of a thread: given back after every image, so that no more is held than one of them takes."""

    def __init__(self) -> None:
        import ncnn

        self.maps, self.work = ncnn.UnlockedPoolAllocator(), ncnn.UnlockedPoolAllocator()

    def clear(self) -> None:
        self.maps.clear()
        self.work.clear()


@cache
def _room() -> _Room:
    return _Room()


@dataclass(frozen=True)
class Run:
    """Layers that ncnn has taken over: convolutions, and at most one pooling, which ends them.

    Attributes:
        net: an ncnn.Net.
        last: the name of what comes out.
        width: channels of the widest map.
        halo: rows that a strip needs above and below; None where maps cannot be cut.
        step: rows that become one.
    """

    net: Any
    last: str
    width: int
    halo: int | None
    step: int

    def __call__(self, maps: Tensor) -> Tensor:
        """From maps (B, C, H, W) in any layout to those of the last layer."""
        return torch.stack([self._in_strips(own) for own in maps])

    def _in_strips(self, own: Tensor) -> Tensor:
        """One image, some rows at a time: what is made of few rows stays in the cache, and takes little memory."""
        _, height, width = own.shape
        high = max(1, STRIP_BYTES // (4 * self.width * width) // self.step) * self.step
        if self.halo is None or high >= height:
            return self._whole(own)
        strips = []
        halo = -(-self.halo // self.step) * self.step
        for top in range(0, height, high):
            first, end = max(0, top - halo), min(height, top + high)
            part = self._whole(own[:, first : min(height, end + halo)])
            strips.append(part[:, (top - first) // self.step : (end - first) // self.step])
        return torch.cat(strips, 1)

    def _whole(self, own: Tensor) -> Tensor:
        import ncnn

        given, room = own.contiguous().numpy(), _room()
        extractor = self.net.create_extractor()
        extractor.set_blob_allocator(room.maps)
        extractor.set_workspace_allocator(room.work)
        extractor.input("given", ncnn.Mat(given))  # not a copy: `given` has to stay until all is done
        failed, result = extractor.extract(self.last)
        if failed or result.empty():
            raise ValueError(f"ncnn: expected maps that kernels and pooling fit into, got {given.shape}.")
        return torch.from_numpy(np.array(result))


def _through(steps: Sequence[nn.Sequential | Run], maps: Tensor) -> Tensor:
    for step in steps:
        maps = step(maps) if isinstance(step, Run) else winograd.run_here(step, maps)
    _room().clear()
    return maps


def _steps(layers: nn.Sequential) -> list[nn.Sequential | Run]:
    """Runs that begin with a convolution which ncnn does well, and what lies between them."""
    groups: list[tuple[bool, list[nn.Module]]] = []
    for layer in layers:
        inside = bool(groups) and groups[-1][0]
        taken = _is_small(layer) or (inside and _may_follow(layer))
        pooled = inside and isinstance(groups[-1][1][-1], nn.MaxPool2d)
        if pooled:  # maps become small there
            taken = _is_small(layer)
        if not groups or pooled or taken != inside:
            groups.append((taken, []))
        groups[-1][1].append(layer)
    return [
        own if taken and (own := _taken_over(group)) is not None else nn.Sequential(*group) for taken, group in groups
    ]


def _is_small(layer: nn.Module) -> bool:
    """Whether it is a convolution of 3 x 3 with stride 1."""
    return winograd.can_be_done(layer) and isinstance(layer, nn.Conv2d) and layer.kernel_size == (3, 3)


def _may_follow(layer: nn.Module) -> bool:
    """Whether it is a relu or a pooling that ncnn has, too."""
    if winograd.has_hooks(layer):
        return False
    if type(layer) is nn.MaxPool2d:
        sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        return all(isinstance(size, int) for size in sizes) and sizes[2:] == (0, 1) and not layer.ceil_mode
    return type(layer) is nn.ReLU


_known: WeakKeyDictionary[nn.Module, tuple[tuple[object, ...], Run | None]] = WeakKeyDictionary()


def _taken_over(group: Sequence[nn.Module]) -> Run | None:
    """A run, made once, and again whenever its layers have changed; None where nothing would be gained."""
    if not any(winograd.applies_to(layer) for layer in group):
        return None
    state = tuple((str(layer), *map(winograd.state_of, layer.parameters())) for layer in group)
    known = _known.get(group[0])
    if known is None or known[0] != state:
        finite = all(bool(value.isfinite().all()) for layer in group for value in layer.parameters())
        known = _known[group[0]] = state, _made(group) if finite else None  # its relu makes NaN zero
    return known[1]


def _made(group: Sequence[nn.Module]) -> Run:
    """The layers in ncnn's format: a line of text each, and a file of weights, which is gone once it has been read."""
    import ncnn

    lines, last = ["Input given 0 1 given"], "given"
    net = ncnn.Net()
    net.opt.num_threads = 1  # images go side by side
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
    net.opt.use_bf16_storage = False
    with tempfile.TemporaryDirectory(prefix="bcnn-ncnn-") as folder:
        path = Path(folder) / "weights"
        with path.open("wb") as file:
            for i, layer in enumerate(group):
                kind, about = _described(layer)
                lines.append(f"{kind} step{i} 1 1 {last} step{i} {about}")
                last = f"step{i}"
                if isinstance(layer, nn.Conv2d):
                    file.write(bytes(4))  # float32 follows
                    for value in layer.parameters():
                        file.write(value.detach().contiguous().numpy().tobytes())
        text = "\n".join([str(MAGIC), f"{len(lines)} {len(lines)}", *lines, ""])
        if net.load_param_mem(text) or net.load_model(str(path)):
            raise ArithmeticError("ncnn: expected it to take the network, and it did not; take --engine winograd.")
    convolutions = [layer for layer in group if isinstance(layer, nn.Conv2d)]
    pooling = [layer for layer in group if isinstance(layer, nn.MaxPool2d)]
    even = all(layer.padding == (1, 1) for layer in convolutions)
    halves = all((layer.kernel_size, layer.stride) == (2, 2) for layer in pooling)
    width = max(max(layer.in_channels, layer.out_channels) for layer in convolutions)
    return Run(net, last, width, len(convolutions) if even and halves else None, 2 if pooling else 1)


def _described(layer: nn.Module) -> tuple[str, str]:
    """The kind of a layer and its numbers, by ncnn's keys."""
    if isinstance(layer, nn.Conv2d):
        high, wide = int(layer.padding[0]), int(layer.padding[1])
        return "Convolution", (
            f"0={layer.out_channels} 1=3 4={wide} 14={high} 5={int(layer.bias is not None)} "
            f"6={math.prod(layer.weight.shape)}"
        )
    if isinstance(layer, nn.MaxPool2d):
        return "Pooling", f"0=0 1={layer.kernel_size} 2={layer.stride} 5=1"  # 5: what does not fit is left out
    return "ReLU", ""
