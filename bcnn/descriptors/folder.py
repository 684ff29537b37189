"""A folder of descriptors: chunks that are written whole or not at all, and one file that says what they are.

``descriptors.json`` holds the configuration, the classes and the list of samples; ``chunk-00000.safetensors`` the
descriptors of the first samples of that list, and so on. A chunk is the unit of resuming: it is there or it is not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..data.contract import SPLITS, Dataset, Sample, shown
from ..files import DIGEST, check_regular, from_json, read_tensors, read_text, write_tensors, written_whole

FORMAT = "bcnn-descriptors"
VERSION = 1
ABOUT = "descriptors.json"
FITTED = "fitted-"  # files with values of parts that were fitted before images were described (`descriptors.fitting`)
VIEWS = ("image", "flip")
_SOUND: set[tuple[Path, int, int, int]] = set()  # chunks that this process has written or checked


@dataclass(frozen=True)
class DescriptorsConfig:
    """What makes descriptors what they are; a folder holds those of one configuration."""

    dataset: str
    listing: str  # sha256 of names, labels and splits
    model: Mapping[str, Any]  # ModelConfig without a classifier, as JSON
    digest: str  # of the network's parameters
    descriptor_length: int
    views: tuple[str, ...] = VIEWS
    precision: str = "float32"  # of the network; descriptors are float32
    chunk: int = 32  # images per file


@dataclass(frozen=True)
class Entry:
    """A sample in the list of the folder."""

    name: str
    label: int
    split: str


def listed(dataset: Dataset) -> tuple[Sample, ...]:
    """The samples in the folder's order: training images first, so that few chunks hold both kinds."""
    return tuple(sample for split in SPLITS for sample in dataset.of(split))


def digest_of(samples: Sequence[Sample], classes: Sequence[str]) -> str:
    """The sha256 of everything the folder lists."""
    text = json.dumps([list(classes), [(s.name, s.label, s.split, *(s.box or ()) * s.cut) for s in samples]])
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_content(listing: str, fingerprints: Iterable[Sequence[int]]) -> str:
    """A digest of the list and of the content of its files; their dates do not matter."""
    total = hashlib.sha256(listing.encode())
    for size, _, checksum in fingerprints:
        total.update(f"{size} {checksum}\n".encode())
    return total.hexdigest()[:16]


def content_of(samples: Sequence[Sample], classes: Sequence[str]) -> str:
    """A digest of samples and of the content of their files, which are read; that of `Descriptors.content`."""
    return digest_of_content(digest_of(samples, classes), (sample.fingerprint() for sample in samples))


# --- writing ----------------------------------------------------------------------------------------------------------


def prepare(folder: Path, config: DescriptorsConfig, dataset: Dataset) -> None:
    """Make the folder, or make sure that it holds this very configuration."""
    if (folder / ABOUT).exists():
        _check_same(folder, Descriptors(folder).config, config)
        return
    check_free(folder)
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


def check_free(folder: Path) -> None:
    """Leave a folder alone that holds anything but descriptors."""
    if folder.exists() and not (folder / ABOUT).exists():
        other = next((path for path in folder.iterdir() if not _is_ours(path)), None) if folder.is_dir() else folder
        if other is not None:
            raise ValueError(
                f"descriptors: expected {shown(str(folder))} to be new, empty, or a folder of descriptors, got "
                f"{shown(other.name)!r} there; choose another folder."
            )


def _is_ours(path: Path) -> bool:
    return path.name.startswith((FITTED, ".bcnn", ".descriptors-", ".chunk-", ".fitted-"))  # the last, half-written


def _check_same(folder: Path, stored: DescriptorsConfig, wanted: DescriptorsConfig) -> None:
    there, now = _telling(stored), _telling(wanted)
    differing = [name for name in sorted({*there, *now}) if there.get(name) != now.get(name)]
    if differing:
        told = [f"{name} is {_short(there.get(name))} there, {_short(now.get(name))} now" for name in differing[:3]]
        raise ValueError(
            f"descriptors: expected {folder} to hold descriptors of this configuration, got another one: "
            f"{'; '.join(told)}; choose another folder, or remove this one."
        )


def _telling(config: DescriptorsConfig) -> dict[str, Any]:
    """All on one level, but for what the weights are called: `digest` says what they are."""
    flat = _flat(json.loads(json.dumps(asdict(config))))
    return {name: value for name, value in flat.items() if not re.fullmatch(r"model\.branches\.\d+\.weights", name)}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Values by names such as model.branches.0.cut; a list of plain values is one value."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = {str(i): own for i, own in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    return {key: one for own, inner in value.items() for key, one in _flat(inner, f"{name}.{own}".lstrip(".")).items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:16]}..."


def chunk_path(folder: Path, number: int) -> Path:
    """The path of the file of a chunk."""
    return folder / f"chunk-{number:05d}.safetensors"


@dataclass(frozen=True)
class Chunk:
    """The descriptors of a few samples, one file of the folder."""

    number: int
    descriptors: Tensor  # (images, views, d)
    rows: Sequence[int]  # which samples of the list they are
    fingerprints: Sequence[Sequence[int]]  # of the files of all samples of the chunk, broken ones too
    broken: Mapping[int, str]  # sample and reason
    time_s: float  # that they took


def write_chunk(folder: Path, chunk: Chunk) -> None:
    """Write the file of a chunk, completely or not at all."""
    tensors = {"descriptors": chunk.descriptors.contiguous(), "rows": torch.tensor(chunk.rows, dtype=torch.int64)}
    about = {
        "fingerprints": [list(fingerprint) for fingerprint in chunk.fingerprints],
        "broken": {str(row): why for row, why in chunk.broken.items()},
        "time_s": chunk.time_s,
    }
    write_tensors(
        chunk_path(folder, chunk.number),
        tensors,
        {key: json.dumps(value) for key, value in about.items()},
        who="descriptors",
        remedy="What was written before is whole; make room and give the same command again, it goes on from there.",
    )
    _SOUND.add(_state_of(chunk_path(folder, chunk.number)))


def check_chunk(folder: Path, number: int) -> None:
    """Make sure that a chunk holds what was written, once as long as its file stays the same.

    Raises: DamagedFileError; OSError and SafetensorError if there is no whole chunk.
    """
    path = chunk_path(folder, number)
    state = _state_of(path)
    if state not in _SOUND:
        read_tensors(path)
        _SOUND.add(state)


def _state_of(path: Path) -> tuple[Path, int, int, int]:
    stat = path.stat()
    return path.absolute(), stat.st_ino, stat.st_size, stat.st_mtime_ns


def read_header(folder: Path, number: int) -> dict[str, Any] | None:
    """What a chunk says of itself, besides its tensors; None where there is no whole chunk."""
    try:
        check_regular(chunk_path(folder, number))
        with safe_open(chunk_path(folder, number), framework="pt") as file:
            header = {key: json.loads(value) for key, value in (file.metadata() or {}).items() if key != DIGEST}
    except (OSError, SafetensorError, ValueError):
        return None
    return header if {"fingerprints", "broken", "time_s"} <= set(header) else None


# --- reading ----------------------------------------------------------------------------------------------------------


class Descriptors:
    """A descriptors folder to read from; nothing but the list is held in memory.

    Args:
        folder: written by `bcnn extract` or `bcnn train`.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        path = self.folder / ABOUT
        try:
            content = json.loads(read_text(path))
        except FileNotFoundError:
            old = ", but a features.json of an early version: describe the images again into a new folder"
            hint = old if (self.folder / "features.json").exists() else ""
            raise FileNotFoundError(
                f"descriptors: expected a folder written by bcnn extract, got {folder}, which has no {ABOUT}{hint}."
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
            self.config = from_json(DescriptorsConfig, about["config"])
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
        """The chunks that have not been written yet."""
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
        """A digest of the names and the contents of all images."""
        return digest_of_content(self.config.listing, (own for about in self._headers for own in about["fingerprints"]))

    @property
    def time_s(self) -> float:
        """How long all chunks took, added up over processes and interruptions."""
        return float(sum(about["time_s"] for about in self._headers))

    def matrix(self, split: str, names: Container[str] | None = None) -> DescriptorRows:
        """The descriptors of one split, or of some of its images, as a matrix that is read by columns."""
        return DescriptorRows(self, split, names)

    def _open(self, number: int) -> Any:
        try:
            check_chunk(self.folder, number)
            return safe_open(chunk_path(self.folder, number), framework="pt")
        except (OSError, SafetensorError) as error:
            raise OSError(
                f"descriptors: expected chunk {number} of {self.num_chunks} in {self.folder}, got: {error}; "
                "finish the folder by giving the command that began it again."
            ) from None


class DescriptorRows:
    """Descriptors of a split: one row per view, an image's views side by side, as a `classify.gram.DescriptorMatrix`.

    Attributes:
        split: whose images they are of.
        shape: rows and columns.
        rows: of each image, its number in the folder's list.
        labels: of each row.
        groups: of each row, which image it is, counted from 0.
    """

    def __init__(self, descriptors: Descriptors, split: str, names: Container[str] | None = None):
        self.split = split
        self._parts: list[tuple[Any, list[int]]] = []  # open file, rows within it
        rows: list[int] = []
        for number in range(descriptors.num_chunks):
            first = number * descriptors.config.chunk
            mine = descriptors.entries[first : first + descriptors.config.chunk]
            if not any(entry.split == split for entry in mine):
                continue
            file = descriptors._open(number)
            own = file.get_tensor("rows").tolist()
            entries = [descriptors.entries[row] for row in own]
            kept = [i for i, e in enumerate(entries) if e.split == split and (names is None or e.name in names)]
            self._parts.append((file, kept))
            rows += [own[i] for i in kept]
        self.rows = tuple(rows)
        self.num_views = len(descriptors.config.views)
        labels = torch.tensor([descriptors.entries[row].label for row in rows], dtype=torch.int64)
        self.labels = labels.repeat_interleave(self.num_views)
        self.groups = torch.arange(len(rows)).repeat_interleave(self.num_views)
        self.shape = (len(self.labels), descriptors.config.descriptor_length)

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` of all rows, in float32."""
        stop = min(stop, self.shape[1])
        result = torch.empty(len(self.rows), self.num_views, stop - start)
        at = 0
        for file, kept in self._parts:
            block = file.get_slice("descriptors")[:, :, start:stop]
            result[at : at + len(kept)] = block if len(kept) == len(block) else block[kept]
            at += len(kept)
        return result.flatten(0, 1)

    @property
    def num_parts(self) -> int:
        """How many files hold rows."""
        return len(self._parts)

    def parts(self) -> Iterator[Tensor]:
        """All rows in order, the rows of a file at a time, shape (rows, d): for those that go through them once."""
        for file, kept in self._parts:
            yield file.get_tensor("descriptors")[kept].flatten(0, 1)


def broken_images(broken: Mapping[str, str], total: int, *, most: int = 5) -> str:
    """A sentence on images that were left out, the first of them by name; empty if there are none."""
    if not broken:
        return ""
    first = [f"  {shown(name)}: {shown(why)}" for name, why in list(broken.items())[:most]]
    more = [f"  and {len(broken) - most} more"] if len(broken) > most else []
    return "\n".join([f"{len(broken)} of {total} images could not be read and were left out:", *first, *more])
