"""From images to descriptors on disk: streamed, resumable, shared among processes.

Paper: Sec. 3.2, the representation of an image and of its flipped copy.
Decoding goes on in threads while the network works; memory holds one chunk and a few decoded images, however many
there are. Which images share a batch does not depend on the number of processes, so neither do the descriptors.
"""

from __future__ import annotations

import shutil
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy
import torch
from torch import Tensor, nn

from ..data.contract import Dataset, Sample, shown
from ..data.preprocess import Preprocessing
from ..errors import DamagedFileWarning
from ..files import DamagedFileError, amount, existing, remove_dead
from ..models.engines import DEFAULT_ENGINE
from ..models.engines import check as check_engine
from ..models.views import in_views
from ..models.weights.cache import digest_of as digest_of_tensors
from ..progress import Progress, silent
from . import folder as store
from .folder import DescriptorsConfig
from .team import Team

T = TypeVar("T")
PRECISIONS = ("float32", "bf16")


class Describer(Protocol):
    """What can be extracted: a `BCNN`, or the first layers of one."""

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared for the network."""

    @property
    def descriptor_length(self) -> int:
        """How many numbers describe an image."""

    @property
    def branches(self) -> Iterable[nn.Module]:
        """What those that share them go through once."""

    def maps(self, images: Tensor) -> Any:
        """What comes of the images, shared by all with the same branches."""

    def describe_maps(self, maps: Any) -> Tensor:
        """Turn feature maps into descriptors, shape (B, descriptor_length)."""

    def to(self, device: Any) -> Any:
        """Move everything to a device."""

    def about(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What makes its descriptors what they are: configuration as JSON, and parameters."""


@dataclass(frozen=True)
class ExtractOptions:
    """How images are described; only `flips` and `precision` change the result, beyond rounding."""

    flips: bool = True
    precision: str = "float32"
    batch: int = 4  # images at a time, their flipped copies not counted
    chunk: int = 32  # images per file
    workers: int = 2  # threads that decode
    strict: bool = False  # stop at an image that cannot be read
    device: str = "cpu"
    engine: str = DEFAULT_ENGINE  # how the network is computed

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"extract: expected precision of {', '.join(PRECISIONS)}, got {self.precision!r}.")
        check_engine("extract", self.engine)
        for name in ("batch", "chunk", "workers"):
            if getattr(self, name) < 1:
                raise ValueError(f"extract: expected {name} >= 1, got {getattr(self, name)}.")


@dataclass(frozen=True)
class Extracted:
    """How many images were described, and which could not be read."""

    num_images: int  # in the dataset
    num_done: int  # described now, by all processes
    broken: dict[str, str]  # names of images that could not be read, and why


def for_dataset(preprocessing: Preprocessing, dataset: Dataset) -> Preprocessing:
    """The preprocessing that a dataset asks for: for aircraft, a crop from a larger square."""
    if dataset.resize_ratio == 1.0:
        return preprocessing
    return replace(preprocessing, resize_to=round(preprocessing.size * dataset.resize_ratio))


def extract(
    dataset: Dataset,
    models: Mapping[Path, Describer],
    options: ExtractOptions | None = None,
    *,
    team: Team | None = None,
    progress: Progress = silent,
    stage: str = "describing images",
) -> Extracted:
    """Describe every image of a dataset; what a folder has already is not done again.

    Args:
        dataset: the images.
        models: networks by the folder of their descriptors; they share backbone, projection and preprocessing
            (`with_head`), and an image goes through the backbone once for all of them.
        options: how.
        team: the processes that share the work.
        progress: hears how many images are done.
        stage: what it calls this work.
    """
    options, team = options or ExtractOptions(), team or Team()
    _check_models(models)
    samples = store.listed(dataset)
    todo = team.lead(lambda: _begin(dataset, samples, models, options))
    _work(samples, todo[team.rank :: team.size], models, options, partial(progress, stage))
    team.wait()
    count = sum(len(range(number * options.chunk, min(len(samples), (number + 1) * options.chunk))) for number in todo)
    broken = store.Descriptors(next(iter(models))).broken if team.leads else {}
    return Extracted(len(samples), count, team.agree(broken))


def config_of(dataset: Dataset, model: Describer, options: ExtractOptions) -> DescriptorsConfig:
    """Everything that decides what the descriptors are, as plain data."""
    config, parameters = model.about()
    return DescriptorsConfig(
        dataset=dataset.name,
        listing=store.digest_of(store.listed(dataset), dataset.classes),
        model=config,
        digest=digest_of_tensors(parameters),
        descriptor_length=model.descriptor_length,
        views=store.VIEWS if options.flips else store.VIEWS[:1],
        precision=options.precision,
        chunk=options.chunk,
    )


def _check_models(models: Mapping[Path, Describer]) -> None:
    if not models:
        raise ValueError("extract: expected at least one network, got none.")
    first, *others = models.values()
    for other in others:
        same = all(a is b for a, b in zip(other.branches, first.branches, strict=True))
        if not same or other.preprocessing != first.preprocessing:
            raise ValueError("extract: expected networks that share their branches (with_head), got different ones.")


def _begin(
    dataset: Dataset, samples: Sequence[Sample], models: Mapping[Path, Describer], options: ExtractOptions
) -> list[int]:
    """Folders that are ready and large enough; returns the chunks to be made."""
    num_chunks = -(-len(samples) // options.chunk)
    new = {path: model for path, model in models.items() if not (path / store.ABOUT).exists()}
    _check_room(new, num_chunks, options)  # before anything is written
    for path, model in models.items():
        store.prepare(path, config_of(dataset, model, options), dataset)
        remove_dead(path.glob(".*"))
    todo = [
        number for number in range(num_chunks) if not all(_is_done(path, number, samples, options) for path in models)
    ]
    _check_room(models, len(todo), options)
    return todo


def _is_done(folder: Path, number: int, samples: Sequence[Sample], options: ExtractOptions) -> bool:
    """Whether a chunk is there and whole, its files have not changed since, and broken ones are broken still."""
    header = store.read_header(folder, number)
    own = samples[number * options.chunk : (number + 1) * options.chunk]
    known = [] if header is None else header["fingerprints"]
    if header is None or len(known) != len(own) or not all(map(Sample.matches, own, known)):
        return False
    for row in header["broken"]:
        try:
            samples[int(row)].open()
        except OSError as error:
            unless_strict(error, options)
        else:
            return False
    try:
        store.check_chunk(folder, number)
    except DamagedFileError:
        path = store.chunk_path(folder, number)
        warnings.warn(DamagedFileWarning(f"{path} is damaged; its images are described again."), stacklevel=2)
        return False
    return True


def _check_room(models: Mapping[Path, Describer], num_chunks: int, options: ExtractOptions) -> None:
    views = 2 if options.flips else 1
    needed: dict[int, int] = {}  # by device
    for folder, model in models.items():
        size = 4 * model.descriptor_length * views * options.chunk * num_chunks
        device = existing(folder).stat().st_dev
        needed[device] = needed.get(device, 0) + size
        free = shutil.disk_usage(existing(folder)).free
        if needed[device] > free:
            raise OSError(
                f"extract: expected {amount(needed[device])} free for {folder}, got {amount(free)}; "
                "make room, choose another folder, or keep less (a projection, no flips)."
            )


def _work(
    samples: Sequence[Sample],
    todo: Sequence[int],
    models: Mapping[Path, Describer],
    options: ExtractOptions,
    tell: Callable[[int, int], None],
) -> None:
    first = next(iter(models.values()))
    for model in models.values():
        model.to(options.device)
    chunks = [range(n * options.chunk, min(len(samples), (n + 1) * options.chunk)) for n in todo]
    total = sum(len(chunk) for chunk in chunks)
    done = 0
    tell(done, total)
    pictures = decoded([samples[row] for chunk in chunks for row in chunk], first.preprocessing, options)
    for number, chunk in zip(todo, chunks, strict=True):
        start = time.perf_counter()
        fingerprints = [samples[row].fingerprint() for row in chunk]
        rows: list[int] = []
        broken: dict[int, str] = {}
        parts: list[list[Tensor]] = []  # of every batch, the descriptors of each model
        for some in batches(zip(chunk, pictures, strict=False), options.batch):  # the pictures go on after the chunk
            good = {row: picture for row, picture in some if not isinstance(picture, OSError)}
            broken |= {row: unless_strict(picture, options) for row, picture in some if isinstance(picture, OSError)}
            if good:
                parts.append(_describe(list(good.values()), list(models.values()), options))
            rows += good
            done += len(some)
            tell(done, total)
        for i, (folder, model) in enumerate(models.items()):
            descriptors = torch.cat([part[i] for part in parts]) if parts else _nothing(model, options)
            taken = time.perf_counter() - start
            store.write_chunk(folder, store.Chunk(number, descriptors, rows, fingerprints, broken, taken))


def batches(things: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield lists of at most `size` things, in order."""
    coming = iter(things)
    while some := list(islice(coming, size)):
        yield some


def unless_strict(error: OSError, options: ExtractOptions) -> str:
    """What is wrong with an image; raised instead where that was asked for."""
    if options.strict:
        raise error
    return str(error)


def _describe(pictures: Sequence[numpy.ndarray], models: Sequence[Describer], options: ExtractOptions) -> list[Tensor]:
    """Descriptors of a batch, shape (images, views, d), one tensor per model."""

    def describe(images: Tensor) -> list[Tensor]:
        maps = models[0].maps(images)
        return [model.describe_maps(maps) for model in models]

    return in_views(
        pictures, models[0].preprocessing, describe,
        flips=options.flips, precision=options.precision, device=options.device, engine=options.engine,
    )  # fmt: skip


def _nothing(model: Describer, options: ExtractOptions) -> Tensor:
    return torch.empty(0, 2 if options.flips else 1, model.descriptor_length)


def decoded(
    samples: Sequence[Sample], preprocessing: Preprocessing, options: ExtractOptions
) -> Iterator[numpy.ndarray | OSError]:
    """Squares of pixels in order, decoded ahead by threads; an error in the place of a broken image."""

    def decode(sample: Sample) -> numpy.ndarray | OSError:
        try:
            return numpy.asarray(preprocessing.fit(sample.open()))
        except OSError as error:
            return error
        except (ValueError, MemoryError) as error:
            return OSError(f"{shown(sample.name)}: {error}")

    ahead = 2 * options.batch + options.workers
    threads = ThreadPoolExecutor(options.workers, thread_name_prefix="decode")
    waiting: deque[Future[numpy.ndarray | OSError]] = deque()
    try:
        for sample in samples:
            waiting.append(threads.submit(decode, sample))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # nobody waits for pictures that nobody wants
