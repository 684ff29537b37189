"""Extraction next to the bare network, and its memory next to the number of images: `bcnn bench extract`.

The bare network is the same model on tensors that are in memory already: no file is read, none is written. Extraction
is what `bcnn extract` does, from image files to features on disk.

Run:      bcnn bench extract cub:PATH --out runs/bench        (--quick: seconds, a small network with random weights)
Cost:     two to four minutes on two cores with alexnet
Expected: benchmarks/results/
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.contract import Dataset, Sample
from ..data.spec import load_dataset
from ..features.extract import ExtractOptions, decoded, extract, for_dataset
from ..files import write_csv
from ..models.bcnn import BCNN, build_model
from ..models.views import to_batch
from ..progress import Progress, silent
from ..report.tables import Column, Layout
from .contract import Benchmark, option
from .timing import time_rounds

PRESET = "improved_bcnn"


@dataclass(frozen=True)
class Settings:
    """What is measured, and what is hoped for: nothing on a small scale."""

    spec: str = option("textures", "The dataset; see `bcnn datasets list`.", is_argument=True)
    backbone: str = option("alexnet", "The network.", quick="tiny")
    weights: str | None = option(
        "default", "default (a download), none for random ones, or a name of `bcnn weights list`.", quick=None
    )
    size: int = option(448, "Side of the images in pixels.", quick=64)
    num_images: int = option(128, "Images per round.", quick=32)
    rounds: int = option(5, "Timed rounds.", quick=2)
    memory_images: tuple[int, ...] = option((64, 256, 1024), quick=(32, 128))
    batch: int = option(4)
    goal: str = option("at least 0.90", quick="")


def run(settings: Settings, progress: Progress = silent) -> list[dict[str, Any]]:
    """Speed of the bare network and of extraction, then memory for more and more images."""
    model = build_model(PRESET, backbone=settings.backbone, weights=settings.weights, size=settings.size)
    dataset = load_dataset(settings.spec)
    model.set_geometry(for_dataset(model.preprocessing, dataset))
    with tempfile.TemporaryDirectory(prefix="bcnn-bench-") as name:
        samples = _files(dataset, max(settings.num_images, *settings.memory_images), Path(name))
        some = replace(dataset, samples=tuple(samples[: settings.num_images]))
        speed = _speed(model, some, settings, Path(name), progress)
        return speed + _memory(samples, settings, Path(name), progress)


def _files(dataset: Dataset, count: int, folder: Path) -> list[Sample]:
    """So many samples, over and over until there are enough; every one is a file with a name of its own."""
    files = []
    for i in range(count):
        sample = dataset.samples[i % len(dataset.samples)]
        if isinstance(sample.source, Path):
            path = folder / f"{i}{sample.source.suffix}"
            path.symlink_to(sample.source.absolute())
        else:
            path = folder / f"{i}.jpg"
            sample.open().save(path, quality=90)
        files.append(replace(sample, name=f"{i}", source=path))
    return files


def _speed(model: BCNN, dataset: Dataset, settings: Settings, folder: Path, progress: Progress) -> list[dict[str, Any]]:
    options = ExtractOptions(batch=settings.batch)
    inputs = _in_memory(model, dataset, options)
    trials: list[Path] = []

    def bare() -> list[Tensor]:
        with torch.inference_mode():
            return [model.describe(images) for images in inputs]

    def whole() -> None:
        trials.append(folder / f"features{len(trials)}")  # a new folder every time
        extract(dataset, {trials[-1]: model}, options)

    group = (
        f"{PRESET} after {settings.backbone} at {settings.size} px, {len(dataset.samples)} images of {dataset.name} "
        f"and their flips, batch {settings.batch}"
    )
    clocks = time_rounds([bare, whole], rounds=settings.rounds, slow_ms=float("inf"), stage="speed", progress=progress)
    return [
        {
            "group": group, "case": case, "images_per_s": 1e3 * len(dataset.samples) / clock.median_ms,
            "share": 1 / clock.ratio_to(clocks[0]), "spread": clock.spread, "goal": goal,
        }
        for case, clock, goal in zip(("bare network", "bcnn extract"), clocks, ("", settings.goal), strict=True)
    ]  # fmt: skip


def _in_memory(model: BCNN, dataset: Dataset, options: ExtractOptions) -> list[Tensor]:
    """One batch that stands for all: what is in it makes no difference to the time."""
    preprocessing = model.preprocessing
    pictures = [
        p for p in decoded(dataset.samples[: options.batch], preprocessing, options) if not isinstance(p, OSError)
    ]
    images = to_batch(pictures, preprocessing)
    return [torch.cat([images, images.flip(-1)])] * -(-len(dataset.samples) // options.batch)


def _memory(samples: Sequence[Sample], settings: Settings, folder: Path, progress: Progress) -> list[dict[str, Any]]:
    """The resident memory of the command itself, for more and more images."""
    group = f"memory of the command, {PRESET} after {settings.backbone} at {settings.size} px"
    records = []
    for i, count in enumerate(settings.memory_images, start=1):
        table = folder / f"{count}.csv"
        write_csv(
            table,
            [
                {"path": own.source, "label": f"class {j % 2}", "split": "train"}
                for j, own in enumerate(samples[:count])
            ],
        )
        memory = _peak_mb(table, folder / f"of{count}", settings)
        records.append({"group": group, "case": f"{count} images", "memory_mb": memory})
        progress("memory", i, len(settings.memory_images))
    return records


def _peak_mb(table: Path, out: Path, settings: Settings) -> float:
    options = {
        "--preset": PRESET, "--backbone": settings.backbone, "--weights": settings.weights or "none",
        "--size": settings.size, "--batch": settings.batch, "--out": out,
    }  # fmt: skip
    command = [sys.executable, "-m", "bcnn", "extract", f"csv:{table}"]
    command += [str(word) for pair in options.items() for word in pair]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise OSError(f"bench extract: expected the command to end well, got: {said.decode(errors='replace')}")
    return usage.ru_maxrss / (1024 if sys.platform != "darwin" else 1024**2)


BENCHMARK = Benchmark(
    Settings,
    run,
    Layout(
        columns=(
            Column("group"),
            Column("case", "case"),
            Column("images_per_s", "images/s", ".1f"),
            Column("share", "of the bare network", ".2f"),  # its speed, in the same rounds
            Column("spread"),  # half the range of the rounds over their median
            Column("goal", "goal"),
            Column("memory_mb", "MB", ".0f"),
        ),
        note="Medians; shares from the same rounds; memory is the most that was resident.",
        bars={"images_per_s": "images/s", "memory_mb": "MB resident"},
    ),
)
