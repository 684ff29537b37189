"""How long things will take, from samples that are measured when first asked for."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import torch

from ..bench.timing import wait
from ..pooling.head import Head, HeadConfig
from .jobs.frozen import Source, describe_stored
from .workshop import Workshop, plain_head

_NUM_PRODUCTS = 60  # of the Gram matrix with all classes that the SVMs take: about as many as were seen


class Gauge:
    """Measured rates of this machine."""

    def __init__(self, shop: Workshop):
        self._shop = shop
        self._views: dict[tuple[str, int], tuple[float, int, int]] = {}
        self._heads: dict[tuple[HeadConfig, int], float] = {}

    def num_images(self, dataset: str) -> tuple[int, int]:
        """For training, and in all."""
        return self._shop.num_images(dataset)

    def view_s(self, network: str, size: int) -> float:
        """A view of an image through the network and the pooling."""
        return self._view(network, size)[0]

    def normalize_s(self, source: Source, head: HeadConfig) -> float:
        """A view from its stored form to its descriptor."""
        _, channels, locations = self._view(source.network, source.size)
        if (head, channels) not in self._heads:
            features = torch.relu(torch.randn(2, channels, locations, device=self._device))
            stored = Head(plain_head(head.pooling))(features)
            module = Head(head).eval().to(self._device)
            self._heads[head, channels] = self._timed(lambda: describe_stored(module, stored)) / 2
        return self._heads[head, channels]

    def classify_s(self, source: Source, head: HeadConfig, num_train: int, num_all: int) -> float:
        """Gram matrix, SVMs, weights and scores, images and flips."""
        channels = self._view(source.network, source.size)[1]
        width, num_classes = Head(head).length(channels), len(self._shop.dataset(source.dataset).classes)
        rows, tests = 2 * num_train, 2 * (num_all - num_train)
        operations = rows * rows * width + 2 * rows * rows * num_classes * _NUM_PRODUCTS
        operations += 4 * rows * width * num_classes + 2 * tests * width * num_classes  # weights in float64
        return operations / self.operations

    def matrix_s(self, dim: int, *, dtype: torch.dtype = torch.float32) -> float:
        """An eigendecomposition."""
        A = torch.randn(dim, dim, dtype=dtype)
        A = A @ A.mT
        return self._timed(lambda: torch.linalg.eigh(A))

    @cached_property
    def operations(self) -> float:
        """A second, of a large product in float32."""
        left = torch.randn(1024, 2048)
        return 2 * 1024 * 1024 * 2048 / self._timed(lambda: left @ left.mT)

    def dim(self, source: Source) -> int:
        """Channels of the network."""
        return self._view(source.network, source.size)[1]

    @torch.inference_mode()
    def _view(self, network: str, size: int) -> tuple[float, int, int]:
        """Seconds, channels and locations."""
        key = (network, size)
        if key not in self._views:
            model = self._shop.network(next(iter(self._shop.data)), network, size)
            images = torch.rand(2, 3, size, size).to(memory_format=torch.channels_last)
            model.to(self._device)
            images = images.to(self._device)
            (maps,) = model.maps(images)
            head = Head(plain_head("bilinear"))
            seconds = self._timed(lambda: head(*model.maps(images))) / len(images)
            self._views[key] = (seconds, int(maps.shape[1]), maps[0, 0].numel())
        return self._views[key]

    @property
    def _device(self) -> str:
        return self._shop.options.device

    def _timed(self, work: Any) -> float:
        """The faster of two, after one that warms up."""
        times = []
        for _ in range(3):
            wait(self._device)
            begin = time.perf_counter()
            work()
            wait(self._device)
            times.append(time.perf_counter() - begin)
        return min(times[1:])
