"""Extraction next to the bare network, and its memory next to the number of images: `bcnn bench extract`.

The bare network is the same model on tensors that are in memory already: no file is read, none is written. Extraction
is what `bcnn extract` does, from image files to features on disk.

Run:      bcnn bench extract cub:PATH --out runs/bench        (--quick: seconds, a small network with random weights)
Cost:     two to four minutes on two cores with alexnet
Expected: benchmarks/results/
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import machine
from ..data.contract import Dataset, Sample
from ..data.spec import load_dataset
from ..features.extract import ExtractOptions, decoded, extract, for_dataset, to_batch
from ..models.bcnn import BCNN, build_model
from .timing import time_rounds

Tick = Callable[[str, int], None]


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    group: str
    case: str
    images_per_s: float | None = None
    share: float | None = None  # of the bare network's speed, in the same rounds
    spread: float | None = None
    memory_mb: float | None = None  # the most that was resident
    goal: str = ""


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    spec: str = "textures"
    backbone: str = "alexnet"
    weights: str | None = "default"
    preset: str = "improved_bcnn"
    size: int = 448
    flips: bool = True
    num_images: int = 128
    memory_images: tuple[int, ...] = (64, 256, 1024)
    rounds: int = 5
    batch: int = 4
    goal: str = "at least 0.90"


def quick(settings: Settings) -> Settings:
    """The same on a small scale."""
    return replace(
        settings, backbone="tiny", weights=None, size=64, num_images=32, memory_images=(32, 128), rounds=2,
        goal="",
    )  # fmt: skip


def run(settings: Settings, tick: Tick = lambda label, total: None) -> list[Row]:
    """Speed, then memory."""
    model = build_model(settings.preset, backbone=settings.backbone, weights=settings.weights, image_size=settings.size)
    dataset = load_dataset(settings.spec)
    model.config = replace(model.config, preprocessing=for_dataset(model.config.preprocessing, dataset))
    with tempfile.TemporaryDirectory(prefix="bcnn-bench-") as name:
        samples = _files(dataset, max(settings.num_images, *settings.memory_images), Path(name))
        return [
            *_speed(model, replace(dataset, samples=tuple(samples[: settings.num_images])), settings, Path(name), tick),
            *_memory(samples, settings, Path(name), tick),
        ]


def _files(dataset: Dataset, count: int, folder: Path) -> list[Sample]:
    """Samples that are files, those that are made written to some, over and over until there are enough."""
    files = []
    (folder / "images").mkdir()
    for i in range(count):
        sample = dataset.samples[i % len(dataset.samples)]
        if isinstance(sample.source, Path):
            source = sample.source.absolute()
        else:
            source = folder / "images" / f"{i}.jpg"
            sample.open().save(source, quality=90)
        files.append(replace(sample, name=f"{i}", source=source))
    return files


def _speed(model: BCNN, dataset: Dataset, settings: Settings, folder: Path, tick: Tick) -> list[Row]:
    options = ExtractOptions(flips=settings.flips, batch=settings.batch)
    inputs = _in_memory(model, dataset, options)
    trials: list[Path] = []

    def bare() -> list[Tensor]:
        with torch.inference_mode():
            return [model.describe(images) for images in inputs]

    def whole() -> None:
        trials.append(folder / f"features{len(trials)}")  # a new folder every time
        extract(dataset, {trials[-1]: model}, options)

    group = (
        f"{settings.preset} after {settings.backbone} at {settings.size} px, {len(dataset.samples)} images of "
        f"{dataset.name}{' and their flips' if settings.flips else ''}, batch {settings.batch}"
    )
    heard = lambda: tick("speed", 2 * (settings.rounds + 1))  # noqa: E731
    clocks = time_rounds([bare, whole], rounds=settings.rounds, slow_ms=float("inf"), tick=heard)
    rows = []
    for case, clock, goal in zip(("bare network", "bcnn extract"), clocks, ("", settings.goal), strict=True):
        speed = 1e3 * len(dataset.samples) / clock.median_ms
        rows.append(Row(group, case, speed, 1 / clock.ratio_to(clocks[0]), clock.spread, goal=goal))
    return rows


def _in_memory(model: BCNN, dataset: Dataset, options: ExtractOptions) -> list[Tensor]:
    """One batch that stands for all: what is in it makes no difference to the time."""
    preprocessing = model.config.preprocessing
    pictures = [
        p for p in decoded(dataset.samples[: options.batch], preprocessing, options) if not isinstance(p, OSError)
    ]
    images = to_batch(pictures, preprocessing)
    images = torch.cat([images, images.flip(-1)]) if options.flips else images
    return [images] * -(-len(dataset.samples) // options.batch)


def _memory(samples: Sequence[Sample], settings: Settings, folder: Path, tick: Tick) -> list[Row]:
    """The resident memory of the command itself, for more and more images."""
    group = f"memory of the command, {settings.preset} after {settings.backbone} at {settings.size} px"
    rows = []
    for count in settings.memory_images:
        table = folder / f"{count}.csv"
        with table.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["path", "label", "split"])
            links = [_link(folder, i, samples[i]) for i in range(count)]
            writer.writerows([link, f"class {i % 2}", "train"] for i, link in enumerate(links))
        rows.append(Row(group, f"{count} images", memory_mb=_peak_mb(table, folder / f"of{count}", settings)))
        tick("memory", len(settings.memory_images))
    return rows


def _link(folder: Path, i: int, sample: Sample) -> str:
    """A name of its own, for a file may be taken more than once."""
    assert isinstance(sample.source, Path)
    link = folder / f"link{i}{sample.source.suffix}"
    if not link.exists():
        link.symlink_to(sample.source)
    return str(link)


def _peak_mb(table: Path, out: Path, settings: Settings) -> float:
    options = {
        "--preset": settings.preset, "--backbone": settings.backbone, "--weights": settings.weights or "none",
        "--size": settings.size, "--batch": settings.batch, "--out": out,
    }  # fmt: skip
    command = [sys.executable, "-m", "bcnn", "extract", f"csv:{table}"]
    command += [str(word) for option in options.items() for word in option]
    command += ["--flips" if settings.flips else "--no-flips"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise OSError(f"bench extract: expected the command to end well, got: {said.decode(errors='replace')}")
    return usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


def to_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as dictionaries, the machine and versions beside every one."""
    about = machine.describe()
    return [{**asdict(row), **about} for row in rows]
