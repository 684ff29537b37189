"""Where a step's input comes from: photographs, or the stored output of the layers that do not change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy
import torch
from safetensors import safe_open
from torch import Tensor, nn

from ..data.contract import Dataset, Sample
from ..data.preprocess import Preprocessing
from ..descriptors import folder as store
from ..descriptors.extract import ExtractOptions, decoded, extract
from ..descriptors.team import Team
from ..models.backbones.contract import Backbone
from ..models.bcnn import BCNN
from ..models.views import to_batch
from ..progress import Progress
from .plan import Item


class Source(Protocol):
    """Gives the network's input for images in any order."""

    def batches(self, items: Sequence[Item], sizes: Sequence[int]) -> Iterator[Tensor]:
        """Input for so many images at a time."""


class Pixels:
    """Photographs, decoded ahead by threads and kept in memory as far as `memory_gb` has room for them."""

    def __init__(
        self, samples: Sequence[Sample], preprocessing: Preprocessing, options: ExtractOptions, memory_gb: float
    ):
        self._samples, self._preprocessing, self._options = samples, preprocessing, options
        self._room = int(memory_gb * 1e9)
        self._kept: dict[int, numpy.ndarray] = {}

    def batches(self, items: Sequence[Item], sizes: Sequence[int]) -> Iterator[Tensor]:
        """Pixels as the network takes them, shape (B, 3, H, W)."""
        pictures = self._pictures([number for number, _ in items])
        views = (picture[:, ::-1] if flip else picture for (_, flip), picture in zip(items, pictures, strict=True))
        for size in sizes:
            yield to_batch(list(islice(views, size)), self._preprocessing, self._options.device)

    def _pictures(self, numbers: Sequence[int]) -> Iterator[numpy.ndarray]:
        kept = [number in self._kept for number in numbers]
        new = [self._samples[number] for number, here in zip(numbers, kept, strict=True) if not here]
        coming = decoded(new, self._preprocessing, self._options)
        for number, here in zip(numbers, kept, strict=True):
            picture = self._kept[number] if here else next(coming)
            if isinstance(picture, OSError):  # those that were broken from the beginning have been left out
                raise picture
            if number not in self._kept and self._room >= picture.nbytes:
                self._kept[number] = picture
                self._room -= picture.nbytes
            yield picture


class StoredMaps:
    """The output of a frozen layer, read from the folder of `store_maps`: the network begins after it."""

    def __init__(self, folder: Path, names: Sequence[str], shape: tuple[int, ...], device: str):
        descriptors = store.Descriptors(folder)
        self._folder, self._shape, self._device = folder, shape, device
        places: dict[str, tuple[int, int]] = {}
        for number in range(descriptors.num_chunks):
            with safe_open(store.chunk_path(folder, number), framework="pt") as file:
                rows = file.get_tensor("rows").tolist()
            places |= {descriptors.entries[row].name: (number, at) for at, row in enumerate(rows)}
        self._places = [places[name] for name in names]
        self._open: dict[int, Any] = {}

    def batches(self, items: Sequence[Item], sizes: Sequence[int]) -> Iterator[Tensor]:
        """Maps, shape (B, C, H, W)."""
        maps = (self._read(*self._places[number], int(mirrored)) for number, mirrored in items)
        for size in sizes:
            yield torch.stack(list(islice(maps, size))).to(self._device)

    def _read(self, chunk: int, row: int, view: int) -> Tensor:
        if chunk not in self._open:
            file: Any = safe_open(store.chunk_path(self._folder, chunk), framework="pt")
            self._open[chunk] = file.get_slice("descriptors")
        maps: Tensor = self._open[chunk][row : row + 1, view : view + 1]
        return maps.reshape(self._shape)


class Stage(nn.Module):
    """The frozen layers of a network with one branch as something to extract: descriptors are the flattened maps."""

    def __init__(self, model: BCNN, layer: str):
        super().__init__()
        whole = model.backbone
        assert isinstance(whole, Backbone)
        names = list(whole.layers._modules)
        self.branches = nn.ModuleList([nn.Sequential(*list(whole.layers)[: names.index(layer) + 1]).eval()])
        (own,) = model.live_config().branches
        self._config = replace(own, cut=layer, proj_dim=None, freeze_until=None)
        self.preprocessing = own.preprocessing
        with torch.no_grad():
            self.shape = tuple(self.maps(torch.zeros(1, 3, own.preprocessing.size, own.preprocessing.size)).shape[1:])
        self.descriptor_length = int(numpy.prod(self.shape))

    def maps(self, images: Tensor) -> Tensor:
        """The output of the last frozen layer."""
        maps: Tensor = self.branches[0](images.contiguous(memory_format=torch.channels_last))
        return maps

    def describe_maps(self, maps: Tensor) -> Tensor:
        """All numbers of the maps in a row."""
        return maps.flatten(1)

    def about(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Which layers, and their parameters."""
        return json.loads(json.dumps({"layers": asdict(self._config)})), self.state_dict()


def store_maps(
    model: BCNN, dataset: Dataset, layer: str, folder: Path, options: ExtractOptions, *, team: Team, progress: Progress
) -> tuple[int, ...]:
    """Write the output of a frozen layer for every image, unless it is there; returns the shape of one image's."""
    layers, stage = Stage(model, layer), "storing the output of frozen layers, images"
    extract(dataset, {folder: layers}, options, team=team, progress=progress, stage=stage)
    return layers.shape
