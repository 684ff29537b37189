"""How long things will take, from samples that are measured when first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import torch

from ..bench.timing import wait
from ..pooling import POOLINGS
from ..pooling.head import Head, HeadConfig
from ..pooling.triangle import full_matrix
from . import spectra
from .workshop import Workshop, describe_stored, plain_head

_NUM_PRODUCTS = 60  # of the Gram matrix with all classes that the SVMs take: about as many as were seen


class View(NamedTuple):
    """What one view of an image takes, through the network and the pooling, and what the network makes of it."""

    seconds: float
    channels: int
    locations: int


class Gauge:
    """How fast this machine is, measured on a few samples."""

    def __init__(self, shop: Workshop):
        self.shop = shop
        self._views: dict[tuple[str, int], View] = {}
        self._heads: dict[tuple[HeadConfig, View], float] = {}

    @torch.inference_mode()
    def view(self, network: str, size: int) -> View:
        """Measure one view of an image of this size."""
        key, device = (network, size), self.shop.options.device
        if key not in self._views:
            model = self.shop.network(next(iter(self.shop.data)), network, size).to(device)
            images = torch.rand(2, 3, size, size).to(device, memory_format=torch.channels_last)
            maps, *_ = model.maps(images)  # of the first network, if there are several
            head = Head(plain_head("bilinear"))
            seconds = self._timed(lambda: head(model.maps(images)[0])) / len(images)
            self._views[key] = View(seconds, int(maps.shape[1]), maps[0, 0].numel())
        return self._views[key]

    def normalize_s(self, view: View, head: HeadConfig) -> float:
        """Seconds per view, from its stored form to its descriptor; what decompositions take is left out."""
        if (head, view) not in self._heads:
            device = self.shop.options.device
            features = torch.relu(torch.randn(2, view.channels, view.locations, device=device))
            stored, module = Head(plain_head(head.pooling))(features), Head(head).eval().to(device)
            if device == "cpu" and spectra.serve(module):
                known = spectra.decompose(full_matrix(stored))
                self._heads[head, view] = self._timed(lambda: spectra.describe(module, known)) / 2
            else:
                self._heads[head, view] = self._timed(lambda: describe_stored(module, stored)) / 2
        return self._heads[head, view]

    def classify_s(self, dataset: str, view: View, head: HeadConfig, *, num_views: int = 2) -> float:
        """Seconds for the Gram matrix, the SVMs, their weights and the scores, of all views of all images."""
        num_train, num_all = self.shop.num_images(dataset)
        module, num_classes = Head(head, [view.channels] * _num_inputs(head)), len(self.shop.dataset(dataset).classes)
        width = 1 if module.out is None else module.out.length
        rows, tests = num_views * num_train, num_views * (num_all - num_train)
        operations = rows * rows * width + 2 * rows * rows * num_classes * _NUM_PRODUCTS
        operations += 4 * rows * width * num_classes + 2 * tests * width * num_classes  # weights in float64
        return operations / self.operations

    def matrix_s(self, dim: int, *, dtype: torch.dtype = torch.float32) -> float:
        """Seconds per eigendecomposition."""
        A = torch.randn(dim, dim, dtype=dtype)
        A = A @ A.mT
        return self._timed(lambda: torch.linalg.eigh(A))

    @cached_property
    def operations(self) -> float:
        """Operations per second, of a large product in float32."""
        left = torch.randn(1024, 2048)
        return 2 * 1024 * 1024 * 2048 / self._timed(lambda: left @ left.mT)

    def _timed(self, work: Callable[[], object]) -> float:
        """Seconds of the faster of two runs, after one that warms up."""
        times = []
        for _ in range(3):
            wait(self.shop.options.device)
            begin = time.perf_counter()
            work()
            wait(self.shop.options.device)
            times.append(time.perf_counter() - begin)
        return min(times[1:])


def _num_inputs(head: HeadConfig) -> int:
    """The number of networks whose features a head takes."""
    return POOLINGS[POOLINGS.read(head.pooling).name].num_inputs
