"""Extraction by every engine, next to the bare network, and its memory: `bcnn bench extract`.

The bare network is the same model on tensors that are in memory already: no file is read, none is written. Extraction
is what `bcnn extract` does, from image files to descriptors on disk.

Run:      bcnn bench extract cub:PATH --out runs/bench        (--quick: seconds, a small network with random weights)
          ... --backbone alexnet,vgg16 --images 32 --rounds 3 --memory 64
Cost:     on two cores about 10 s per image with vgg16 and 3 rounds, 1 s with alexnet
Expected: benchmarks/results/
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from ..data.contract import SPLITS, Dataset, Sample
from ..data.spec import load_dataset
from ..descriptors.extract import ExtractOptions, decoded, extract, for_dataset
from ..descriptors.folder import Descriptors
from ..files import write_csv
from ..models.bcnn import BCNN
from ..models.build import build_model
from ..models.engines import usable, using
from ..models.views import to_batch
from ..progress import Progress, silent
from ..report.tables import Column, Layout
from .settings import Extract
from .timing import time_rounds

PRESET = "improved_bcnn"
GOALS = {"vgg16": "at most 0.55", "alexnet": "at most 0.80"}  # of torch's time


def run(settings: Extract, progress: Progress = silent) -> list[dict[str, Any]]:
    """Of every network the speed, bare and in extraction, then memory for more and more images."""
    dataset = load_dataset(settings.spec)
    records = []
    with tempfile.TemporaryDirectory(prefix="bcnn-bench-") as name:
        samples = _files(dataset, max(settings.num_images, *settings.memory), Path(name))
        some = replace(dataset, samples=tuple(samples[: settings.num_images]))
        for backbone in settings.backbone:
            model = build_model(PRESET, backbone=backbone, weights=settings.weights, size=settings.size)
            model.set_geometry(for_dataset(model.preprocessing, dataset))
            folder = Path(name) / backbone
            folder.mkdir()
            records += _speed(model, some, settings, folder, progress)
            records += _memory(backbone, samples, settings, folder, progress)
    return records


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


def _speed(model: BCNN, dataset: Dataset, settings: Extract, folder: Path, progress: Progress) -> list[dict[str, Any]]:
    """Every engine, torch first: the network alone, and from files to descriptors."""
    names = sorted(usable(), key=lambda name: name != "torch")
    options = {name: ExtractOptions(batch=settings.batch, engine=name) for name in names}
    inputs = _in_memory(model, dataset, options["torch"])
    trials: dict[str, list[Path]] = {name: [] for name in names}

    def bare(name: str) -> list[Tensor]:
        with torch.inference_mode(), using(name):
            return [model.describe(images) for images in inputs]

    def whole(name: str) -> None:
        trials[name].append(folder / f"{name}{len(trials[name])}")  # a new folder every time
        extract(dataset, {trials[name][-1]: model}, options[name])

    backbone = model.config.backbone
    group = (
        f"{PRESET} after {backbone} at {settings.size} px, {len(dataset.samples)} images of {dataset.name} "
        f"and their flips, batch {settings.batch}"
    )
    runs = [partial(work, name) for name in names for work in (bare, whole)]
    clocks = time_rounds(runs, rounds=settings.rounds, slow_ms=float("inf"), stage="speed", progress=progress)
    records = []
    for i, (name, work) in enumerate(product(names, ("bare network", "bcnn extract"))):
        about: dict[str, Any] = {}
        if i % 2:
            about = {"cosine": smallest_cosine(trials["torch"][0], trials[name][0])}
            about["goal"] = GOALS.get(backbone, "") if name != "torch" and not settings.quick else ""
        records.append(
            {
                "group": group, "case": work, "engine": name,
                "images_per_s": 1e3 * len(dataset.samples) / clocks[i].median_ms,
                "time": clocks[i].ratio_to(clocks[i % 2]), "share": 1 / clocks[i].ratio_to(clocks[i - i % 2]),
                "spread": clocks[i].spread, **about,
            }
        )  # fmt: skip
    return records


def smallest_cosine(folder: Path, other: Path) -> float:
    """The smallest cosine between descriptors of the same view in two folders."""
    found = []
    for split in SPLITS:
        first, second = (Descriptors(path).matrix(split).parts() for path in (folder, other))
        pairs = zip(first, second, strict=True)
        found += [float(cosine_similarity(a.double(), b.double()).min()) for a, b in pairs if len(a)]
    return min(found)


def _in_memory(model: BCNN, dataset: Dataset, options: ExtractOptions) -> list[Tensor]:
    """One batch that stands for all: what is in it makes no difference to the time."""
    preprocessing = model.preprocessing
    pictures = [
        p for p in decoded(dataset.samples[: options.batch], preprocessing, options) if not isinstance(p, OSError)
    ]
    images = to_batch(pictures, preprocessing)
    return [torch.cat([images, images.flip(-1)])] * -(-len(dataset.samples) // options.batch)


def _memory(
    backbone: str, samples: Sequence[Sample], settings: Extract, folder: Path, progress: Progress
) -> list[dict[str, Any]]:
    """The resident memory of the command itself, for more and more images."""
    group = f"memory of the command, {PRESET} after {backbone} at {settings.size} px"
    records = []
    cases = [*product(usable(), settings.memory)]
    for i, (engine, count) in enumerate(cases, start=1):
        table = folder / f"{count}.csv"
        write_csv(
            table,
            [
                {"path": own.source, "label": f"class {j % 2}", "split": "train"}
                for j, own in enumerate(samples[:count])
            ],
        )
        options = {"--backbone": backbone, "--engine": engine, "--out": folder / f"{engine}_of{count}"}
        memory = _peak_mb(table, options, settings)
        records.append({"group": group, "case": f"{count} images", "engine": engine, "memory_mb": memory})
        progress("memory", i, len(cases))
    return records


# The system counts what the process that starts another one holds as memory of the other: a small one has to start it.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""


def _peak_mb(table: Path, given: Mapping[str, object], settings: Extract) -> float:
    options = {
        "--preset": PRESET, "--weights": settings.weights or "none", "--size": settings.size, "--batch": settings.batch,
        **given,
    }  # fmt: skip
    command = [sys.executable, "-m", "bcnn", "extract", f"csv:{table}"]
    command += [str(word) for pair in options.items() for word in pair]
    done = subprocess.run([sys.executable, "-c", _MEASURED, *command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"bench extract: expected the command to end well, got: {done.stderr}")
    return int(done.stdout) / (1024 if sys.platform != "darwin" else 1024**2)


LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "case"),
        Column("engine", "engine"),
        Column("images_per_s", "images/s", ".1f"),
        Column("time", "time, of torch's", ".2f"),  # of the same case, in the same rounds
        Column("goal", "goal"),
        Column("share", "of the bare network", ".2f"),  # its speed, with the same engine in the same rounds
        Column("cosine", "smallest cosine", ".7f"),  # to descriptors by torch
        Column("spread"),  # half the range of the rounds over their median
        Column("memory_mb", "MB", ".0f"),
    ),
    note="Medians; ratios from the same rounds; memory is the most that was resident.",
    bars={"images_per_s": "images/s", "memory_mb": "MB resident"},
)
