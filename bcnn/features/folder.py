"""A folder of descriptors: chunks that are written whole or not at all, and one file that says what they are.

``features.json`` holds the configuration, the classes and the list of samples; ``chunk-00000.safetensors`` the
descriptors of the first samples of that list, and so on. A chunk is the unit of resuming: it is there or it is not.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..data.contract import SPLITS, Dataset, Sample, shown
from ..files import from_json, write_tensors, written_whole
from ..models.files import first_config

FORMAT = "bcnn-features"
VERSION = 1
ABOUT = "features.json"
FITTED = "fitted-"  # files with values of parts that were fitted before images were described (`features.fitting`)
VIEWS = ("image", "flip")


@dataclass(frozen=True)
class FeaturesConfig:
    """What makes descriptors what they are; a folder holds those of one configuration."""

    dataset: str
    listing: str  # sha256 of names, labels and splits
    model: Mapping[str, Any]  # ModelConfig without a classifier, as JSON
    digest: str  # of the network's parameters
    num_features: int
    views: tuple[str, ...] = VIEWS
    precision: str = "float32"  # of the network; descriptors are float32
    chunk: int = 32  # images per file


@dataclass(frozen=True)
class Entry:
    """A sample as the folder lists it."""

    name: str
    label: int
    split: str


def listed(dataset: Dataset) -> tuple[Sample, ...]:
    """The samples in the folder's order: training images first, so that few chunks hold both kinds."""
    return tuple(sample for split in SPLITS for sample in dataset.of(split))


def digest_of(samples: Sequence[Sample], classes: Sequence[str]) -> str:
    """A sha256 of what the folder lists."""
    text = json.dumps([list(classes), [(s.name, s.label, s.split) for s in samples]])
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_content(listing: str, fingerprints: Iterable[Sequence[int]]) -> str:
    """A digest of the list and of the content of its files; their dates do not matter."""
    total = hashlib.sha256(listing.encode())
    for size, _, checksum in fingerprints:
        total.update(f"{size} {checksum}\n".encode())
    return total.hexdigest()[:16]


# --- writing ----------------------------------------------------------------------------------------------------------


def prepare(folder: Path, config: FeaturesConfig, dataset: Dataset) -> None:
    """Make the folder, or make sure that it holds this very configuration."""
    if (folder / ABOUT).exists():
        _check_same(folder, Features(folder).config, config)
        return
    if folder.exists() and (not folder.is_dir() or any(not _is_ours(path) for path in folder.iterdir())):
        raise ValueError(f"features: expected {folder} to be new, empty, or a features folder; got something else.")
    content = {
        "format": FORMAT,
        "version": VERSION,
        "config": asdict(config),
        "classes": list(dataset.classes),
        "samples": [[s.name, s.label, s.split] for s in listed(dataset)],
    }
    text = json.dumps(content)
    with written_whole(folder / ABOUT) as temporary:
        temporary.write_text(text)


def clean(folder: Path, *, age_s: float = 3600) -> None:
    """Remove what a killed process left half-written, unless it may still be at it."""
    for path in folder.glob(".*"):
        with suppress(OSError):
            if _is_temporary(path) and time.time() - path.stat().st_mtime > age_s:
                path.unlink()


def _is_ours(path: Path) -> bool:
    return path.name.startswith(FITTED) or _is_temporary(path)


def _is_temporary(path: Path) -> bool:
    return path.name.startswith((".features-", ".chunk-", ".fitted-"))


def _check_same(folder: Path, stored: FeaturesConfig, wanted: FeaturesConfig) -> None:
    differences = _differences(_telling(stored), json.loads(json.dumps(_telling(wanted))))
    if differences:
        raise ValueError(
            f"features: expected {folder} to hold features of this configuration, got another one: "
            f"{'; '.join(differences[:3])}; choose another folder, or remove this one."
        )


def _telling(config: FeaturesConfig) -> dict[str, Any]:
    """All but what the weights are called: `digest` says what they are."""
    model = first_config(config.model) if "frozen_until" in config.model else dict(config.model)
    model["branches"] = [{**branch, "weights": None} for branch in model.get("branches", ())]
    return {**asdict(config), "model": json.loads(json.dumps(model))}


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any], prefix: str = "") -> list[str]:
    found = []
    for name in sorted({*stored, *wanted}):
        here, there = stored.get(name), wanted.get(name)
        here, there = _by_name(here), _by_name(there)
        if isinstance(here, Mapping) and isinstance(there, Mapping):
            found += _differences(here, there, f"{prefix}{name}.")
        elif (list(here) if isinstance(here, tuple) else here) != there:
            found.append(f"{prefix}{name} is {_short(here)} there, {_short(there)} now")
    return found


def _by_name(value: Any) -> Any:
    """A list of records as a record of numbers."""
    several = isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Mapping)
    return {str(i): own for i, own in enumerate(value)} if several else value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:16]}..."


def chunk_path(folder: Path, number: int) -> Path:
    """The file of that chunk."""
    return folder / f"chunk-{number:05d}.safetensors"


@dataclass(frozen=True)
class Chunk:
    """Descriptors of a few samples."""

    number: int
    features: Tensor  # (images, views, d)
    rows: Sequence[int]  # which samples of the list they are
    fingerprints: Sequence[Sequence[int]]  # of the files of all samples of the chunk, broken ones too
    broken: Mapping[int, str]  # sample and reason
    time_s: float  # that they took


def write_chunk(folder: Path, chunk: Chunk) -> None:
    """Write a chunk whole."""
    tensors = {"features": chunk.features.contiguous(), "rows": torch.tensor(chunk.rows, dtype=torch.int64)}
    about = {
        "fingerprints": [list(fingerprint) for fingerprint in chunk.fingerprints],
        "broken": {str(row): why for row, why in chunk.broken.items()},
        "time_s": chunk.time_s,
    }
    write_tensors(
        chunk_path(folder, chunk.number),
        tensors,
        {key: json.dumps(value) for key, value in about.items()},
        who="features",
        remedy="What was written before is whole; make room and give the same command again, it goes on from there.",
    )


def read_header(folder: Path, number: int) -> dict[str, Any] | None:
    """What a chunk says of itself, besides its tensors; None where there is no whole chunk."""
    try:
        with safe_open(chunk_path(folder, number), framework="pt") as file:
            header = {key: json.loads(value) for key, value in (file.metadata() or {}).items()}
    except (OSError, SafetensorError, ValueError):
        return None
    return header if {"fingerprints", "broken", "time_s"} <= set(header) else None


# --- reading ----------------------------------------------------------------------------------------------------------


class Features:
    """A features folder to read from; nothing but the list is held in memory.

    Args:
        folder: written by `bcnn extract` or `bcnn train`.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        path = self.folder / ABOUT
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            raise FileNotFoundError(
                f"features: expected a folder written by bcnn extract, got {folder}, which has no {ABOUT}."
            ) from None
        except ValueError as error:
            raise ValueError(f"{path}: expected JSON, got: {error}.") from None
        about = content if isinstance(content, dict) else {}
        if about.get("format") != FORMAT or about.get("version", 0) > VERSION:
            raise ValueError(
                f"{path}: expected {FORMAT} of version {VERSION} or older, "
                f"got {about.get('format')!r} of version {about.get('version')!r}."
            )
        try:
            self.config = from_json(FeaturesConfig, about["config"])
            self.classes = tuple(about["classes"])
            self.entries = tuple(Entry(*entry) for entry in about["samples"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: expected a list of samples and their configuration, got: {error!r}.") from None

    @property
    def num_chunks(self) -> int:
        """How many chunks a complete folder has."""
        return -(-len(self.entries) // self.config.chunk)

    @property
    def missing(self) -> list[int]:
        """The chunks that are not there."""
        return [number for number in range(self.num_chunks) if read_header(self.folder, number) is None]

    @cached_property
    def _headers(self) -> list[dict[str, Any]]:
        headers = [read_header(self.folder, number) for number in range(self.num_chunks)]
        return [header for header in headers if header is not None]

    @property
    def broken(self) -> dict[str, str]:
        """Names of the images that could not be read, and why."""
        return {self.entries[int(row)].name: why for about in self._headers for row, why in about["broken"].items()}

    @property
    def content(self) -> str:
        """A digest of the images, names and content."""
        return digest_of_content(self.config.listing, (own for about in self._headers for own in about["fingerprints"]))

    @property
    def time_s(self) -> float:
        """How long all chunks took, added up over processes and interruptions."""
        return float(sum(about["time_s"] for about in self._headers))

    def matrix(self, split: str, names: Container[str] | None = None) -> FeatureRows:
        """The descriptors of one split, or of some of its images, as a matrix that is read by columns."""
        return FeatureRows(self, split, names)

    def _open(self, number: int) -> Any:
        try:
            return safe_open(chunk_path(self.folder, number), framework="pt")
        except (OSError, SafetensorError) as error:
            raise OSError(
                f"features: expected chunk {number} of {self.num_chunks} in {self.folder}, got: {error}; "
                "finish the folder by giving the command that began it again."
            ) from None


class FeatureRows:
    """Descriptors of a split: one row per view, an image's views next to each other; see `classify.gram.FeatureMatrix`.

    Attributes:
        shape: rows and columns.
        rows: of each image, its number in the folder's list.
        labels: of each row.
        groups: of each row, which image it is, counted from 0.
    """

    def __init__(self, features: Features, split: str, names: Container[str] | None = None):
        self._parts: list[tuple[Any, list[int]]] = []  # open file, rows within it
        rows: list[int] = []
        for number in range(features.num_chunks):
            first = number * features.config.chunk
            mine = features.entries[first : first + features.config.chunk]
            if not any(entry.split == split for entry in mine):
                continue
            file = features._open(number)
            own = file.get_tensor("rows").tolist()
            entries = [features.entries[row] for row in own]
            kept = [i for i, e in enumerate(entries) if e.split == split and (names is None or e.name in names)]
            self._parts.append((file, kept))
            rows += [own[i] for i in kept]
        self.rows = tuple(rows)
        self.num_views = len(features.config.views)
        labels = torch.tensor([features.entries[row].label for row in rows], dtype=torch.int64)
        self.labels = labels.repeat_interleave(self.num_views)
        self.groups = torch.arange(len(rows)).repeat_interleave(self.num_views)
        self.shape = (len(self.labels), features.config.num_features)

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` of all rows, in float32."""
        stop = min(stop, self.shape[1])
        result = torch.empty(len(self.rows), self.num_views, stop - start)
        at = 0
        for file, kept in self._parts:
            block = file.get_slice("features")[:, :, start:stop]
            result[at : at + len(kept)] = block if len(kept) == len(block) else block[kept]
            at += len(kept)
        return result.flatten(0, 1)

    def parts(self) -> Iterator[Tensor]:
        """All rows in order, the rows of a file at a time, shape (rows, d): for those that go through them once."""
        for file, kept in self._parts:
            yield file.get_tensor("features")[kept].flatten(0, 1)


def describe_broken(broken: Mapping[str, str], total: int, *, most: int = 5) -> str:
    """A sentence on images that were left out, the first of them by name; empty if there are none."""
    if not broken:
        return ""
    first = [f"  {shown(name)}: {shown(why)}" for name, why in list(broken.items())[:most]]
    more = [f"  and {len(broken) - most} more"] if len(broken) > most else []
    return "\n".join([f"{len(broken)} of {total} images could not be read and were left out:", *first, *more])
