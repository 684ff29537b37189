"""How long things will take, from samples that are measured when first asked for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property

import torch

from ..bench.timing import wait
from ..pooling.head import Head, HeadConfig
from .stored import describe_stored, plain_head
from .workshop import Workshop

_NUM_PRODUCTS = 60  # of the Gram matrix with all classes that the SVMs take: about as many as were seen


class Gauge:
    """Measured rates of this machine."""

    def __init__(self, shop: Workshop):
        self._shop = shop
        self._views: dict[tuple[str, int], tuple[float, int, int]] = {}
        self._heads: dict[tuple[HeadConfig, int], float] = {}

    def num_images(self, dataset: str) -> tuple[int, int]:
        """The number of images for training, and in all."""
        return self._shop.num_images(dataset)

    def view_s(self, network: str, size: int) -> float:
        """Seconds per view of an image, through the network and the pooling."""
        return self._view(network, size)[0]

    def dim(self, network: str, size: int) -> int:
        """The number of channels of the network's features."""
        return self._view(network, size)[1]

    def normalize_s(self, network: str, size: int, head: HeadConfig) -> float:
        """Seconds per view, from its stored form to its descriptor."""
        _, channels, locations = self._view(network, size)
        if (head, channels) not in self._heads:
            features = torch.relu(torch.randn(2, channels, locations, device=self._device))
            stored = Head(plain_head(head.pooling))(features)
            module = Head(head).eval().to(self._device)
            self._heads[head, channels] = self._timed(lambda: describe_stored(module, stored)) / 2
        return self._heads[head, channels]

    def classify_s(self, dataset: str, num_features: int) -> float:
        """Seconds for the Gram matrix, the SVMs, their weights and the scores, of all images and their flips."""
        num_train, num_all = self.num_images(dataset)
        num_classes = len(self._shop.dataset(dataset).classes)
        rows, tests = 2 * num_train, 2 * (num_all - num_train)
        operations = rows * rows * num_features + 2 * rows * rows * num_classes * _NUM_PRODUCTS
        operations += 4 * rows * num_features * num_classes  # the weights, in float64
        operations += 2 * tests * num_features * num_classes
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

    @torch.inference_mode()
    def _view(self, network: str, size: int) -> tuple[float, int, int]:
        """Seconds, channels and locations of one view."""
        key = (network, size)
        if key not in self._views:
            model = self._shop.network(next(iter(self._shop.data)), network, size).to(self._device)
            images = torch.rand(2, 3, size, size).to(self._device, memory_format=torch.channels_last)
            (maps,) = model.maps(images)
            head = Head(plain_head("bilinear"))
            seconds = self._timed(lambda: head(*model.maps(images))) / len(images)
            self._views[key] = (seconds, int(maps.shape[1]), maps[0, 0].numel())
        return self._views[key]

    @property
    def _device(self) -> str:
        return self._shop.options.device

    def _timed(self, work: Callable[[], object]) -> float:
        """Seconds of the faster of two runs, after one that warms up."""
        times = []
        for _ in range(3):
            wait(self._device)
            begin = time.perf_counter()
            work()
            wait(self._device)
            times.append(time.perf_counter() - begin)
        return min(times[1:])
