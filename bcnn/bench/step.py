"""How the time of a fine-tuning step splits into its parts, head by head: `bcnn bench step`.

A step is that of `bcnn train --finetune`: its photographs, decoded by threads while the network works, its batches, its
optimizer. The graph is cut between network, head and classifier, and each part gets the gradient that the next one
hands back: what is computed stays the same. Of the head, pooling and the normalizations of entries are what the step
without a matrix function takes in the same round; the matrix function is the rest. The learning rate is zero: a step
takes as long, and every round works on the same weights.

The threads that decode take their share of the cores, as in training: most of it while the next batch is in the
network's forward pass, to which it is counted. Where decoding takes longer than a step, the waiting depends on the head
before as well.

Run:      bcnn bench step --out runs/bench         (--quick: seconds, a small network)
Cost:     not yet run
Expected: benchmarks/results/
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
import torch
from torch import Tensor
from torch.nn import functional

from .. import machine
from ..data.contract import TRAIN, Sample
from ..errors import GradientExceptionWarning, NonFiniteTrainingError
from ..features.extract import ExtractOptions, with_head
from ..models.bcnn import BCNN, build_model
from ..pooling.head import PRESETS, HeadConfig, make_config
from ..train.config import FinetuneConfig
from ..train.module import Trained, make_optimizer, set_learning_rate
from ..train.plan import Item
from ..train.source import Pixels
from .timing import Clock

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from PIL.Image import Image

Tick = Callable[[str, int], None]
Laps = dict[str, float]  # milliseconds a step, by part

BARE = "bcnn"  # the head without a matrix function
WAIT, NETWORK, HEAD, CLASSIFIER, UPDATE = "wait", "network", "head", "classifier", "update"

_NUM_PHOTOGRAPHS = 8
_PHOTOGRAPH = (500, 375)  # width and height, those of most in CUB
_SPARE = 3  # batches that nobody takes, so that threads have something to decode until the end


def _before_entries(function: str, preset: str = "improved_bcnn") -> HeadConfig:
    """A matrix function in front of the bare head's normalizations, with the ridge of a preset."""
    return make_config(preset, normalize=(function, *PRESETS[BARE].normalize))


HEADS: dict[str, HeadConfig] = {
    BARE: PRESETS[BARE],
    "improved_bcnn": PRESETS["improved_bcnn"],
    "sqrt: lyapunov": _before_entries("matrix_sqrt(backward='lyapunov')"),
    "sqrt: svd, svd_truncated": _before_entries("matrix_sqrt(forward='svd', backward='svd_truncated')"),
    "sqrt: identity": _before_entries("matrix_sqrt(backward='identity')"),  # "Faster" of Table 3
    "sqrt: newton_schulz 5, unrolled": _before_entries(
        "matrix_sqrt(forward='newton_schulz', num_iters=5, backward='unrolled')"
    ),
    "log: loewner": _before_entries("matrix_log(backward='loewner')", "o2p"),
    "power 0.3: loewner": _before_entries("matrix_power(0.3, backward='loewner')"),
}


@dataclass(frozen=True)
class Row:
    """One head; times in milliseconds an image, medians over the rounds."""

    group: str
    case: str
    normalize: str
    data_alone_ms: float  # from files to a batch, nothing else running; no part of the step
    wait_ms: float  # for the next batch, decoded in the meantime
    network_ms: float
    pooling_ms: float  # with the normalizations of entries
    matrix_ms: float
    classifier_ms: float  # with the loss
    update_ms: float
    step_ms: float  # all parts together
    share: float  # of the matrix function in the step
    share_spread: float  # half its range over the rounds
    spread: float  # of the step


@dataclass(frozen=True)
class Settings:
    """What is measured."""

    backbone: str = "alexnet"
    weights: str | None = None
    size: int = 448
    batch: int = 8
    num_classes: int = 200
    rounds: int = 5
    workers: int = 2  # threads that decode

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"bench step: expected {field.name} to be a whole number >= 1, got {value!r}.")


QUICK = Settings("tiny", size=64, batch=4, num_classes=10, rounds=2)


class Stopwatch:
    """Times of parts that come in turn, each more than once if need be."""

    def __init__(self) -> None:
        self.laps: Laps = defaultdict(float)
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        """What has passed since the last call belongs to this part."""
        now = time.perf_counter()
        self.laps[part] += 1e3 * (now - self._last)
        self._last = now


class _Round(NamedTuple):
    """What one round gave."""

    alone_ms: float  # an image, decoded with nothing else running
    steps: dict[str, Laps]  # by head


@dataclass(frozen=True)
class _Training:
    """What the steps share: the models have one backbone and one classifier."""

    models: dict[str, BCNN]
    optimizer: torch.optim.SGD
    source: Pixels
    labels: Tensor  # (B,)

    def batches(self, count: int) -> Iterator[Tensor]:
        """So many batches, every second image mirrored."""
        batch = len(self.labels)
        items: list[Item] = [(i % _NUM_PHOTOGRAPHS, i % 2 == 1) for i in range(count * batch)]
        return self.source.batches(items, [batch] * count)


def run(settings: Settings, tick: Tick = lambda label, total: None) -> list[Row]:
    """One row a head, after a round that does not count."""
    with tempfile.TemporaryDirectory(prefix="bcnn-bench-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientExceptionWarning)  # no matter of time
        training = _set_up(settings, Path(name))
        group = _title(training.models[BARE], settings)
        total = (settings.rounds + 1) * (len(HEADS) + 1)
        rounds = [_round(training, lambda: tick("steps", total)) for _ in range(settings.rounds + 1)][1:]
    return [_row(group, case, rounds, settings.batch) for case in HEADS]


# --- what is trained --------------------------------------------------------------------------------------------------


def _set_up(settings: Settings, folder: Path) -> _Training:
    model = build_model(
        BARE, backbone=settings.backbone, weights=settings.weights, num_classes=settings.num_classes,
        image_size=settings.size,
    )  # fmt: skip
    optimizer = make_optimizer(model, FinetuneConfig())
    set_learning_rate(optimizer, 0.0)
    options = ExtractOptions(batch=settings.batch, workers=settings.workers)
    source = Pixels(_photographs(folder), model.config.preprocessing, options, memory_gb=0.0)
    labels = torch.randint(settings.num_classes, (settings.batch,), generator=torch.Generator().manual_seed(0))
    return _Training(models_of(model), optimizer, source, labels)


def models_of(model: BCNN) -> dict[str, BCNN]:
    """The network under every head, ready to be trained; all share its parameters."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    models = {case: with_head(model, config) for case, config in HEADS.items()}
    for other in models.values():
        other.classifier = model.classifier
        Trained(other).train()
    return models


def _title(model: BCNN, settings: Settings) -> str:
    with torch.no_grad():
        _, d, height, width = model.features(torch.zeros(1, 3, settings.size, settings.size)).shape
    return (
        f"a step of {settings.batch} images, {settings.backbone} at {settings.size} px, d={d}, n={height * width}, "
        f"{settings.num_classes} classes, weights {settings.weights or 'random'}"
    )


def _photographs(folder: Path) -> list[Sample]:
    """Files of made-up photographs."""
    samples = []
    for i in range(_NUM_PHOTOGRAPHS):
        path = folder / f"{i}.jpg"
        _photograph(numpy.random.default_rng(i)).save(path, quality=90)
        samples.append(Sample(path.name, 0, TRAIN, path))
    return samples


def _photograph(rng: numpy.random.Generator) -> Image:
    """Blots of all sizes, the larger the stronger, as in a photograph: some 50 kB to decode."""
    from PIL.Image import Resampling, fromarray

    width, height = _PHOTOGRAPH
    pixels: NDArray[numpy.float64] = numpy.full((height, width, 3), 128.0)
    for octave in range(1, 8):
        blots = rng.normal(size=(3, 2 + (height << octave >> 8), 2 + (width << octave >> 8))).astype(numpy.float32)
        colours = [numpy.asarray(fromarray(own).resize(_PHOTOGRAPH, Resampling.BICUBIC)) for own in blots]
        pixels += 24 * 0.85**octave * numpy.stack(colours, -1)
    return fromarray(pixels.round().clip(0, 255).astype(numpy.uint8))


# --- steps ------------------------------------------------------------------------------------------------------------


def _round(training: _Training, tick: Callable[[], None]) -> _Round:
    """Decoding alone, then a step with every head."""
    alone = _decode_alone(training)
    batches = training.batches(1 + len(training.models) + _SPARE)
    _step(training, BARE, batches)  # from here on the threads are ahead
    tick()
    steps = {}
    for case in training.models:
        steps[case] = _step(training, case, batches)
        tick()
    return _Round(alone, steps)


def _decode_alone(training: _Training, count: int = 4) -> float:
    start = time.perf_counter()
    for _ in training.batches(count):
        pass
    return 1e3 * (time.perf_counter() - start) / (count * len(training.labels))


def _step(training: _Training, case: str, batches: Iterator[Tensor]) -> Laps:
    """One step of the training loop, timed."""
    watch = Stopwatch()
    images = next(batches)
    watch.lap(WAIT)
    backward_in_parts(training.models[case], images, training.labels, watch.lap)
    _update(training.optimizer, case)
    watch.lap(UPDATE)
    return watch.laps


def backward_in_parts(model: BCNN, images: Tensor, labels: Tensor, lap: Callable[[str], None]) -> None:
    """What ``cross_entropy(model(images), labels).backward()`` leaves in the parameters, part by part.

    Args:
        model: with a classifier.
        images: shape (B, 3, H, W).
        labels: shape (B,).
        lap: hears the name of each part when it has been worked on: forward, then backward.
    """
    maps = model.features(images)
    lap(NETWORK)
    cut_maps = maps.detach().requires_grad_()
    descriptors = model.head(cut_maps)
    lap(HEAD)
    cut_descriptors = descriptors.detach().requires_grad_()
    functional.cross_entropy(model.classify(cut_descriptors).float(), labels).backward()
    lap(CLASSIFIER)
    descriptors.backward(cut_descriptors.grad)
    lap(HEAD)
    maps.backward(cut_maps.grad)
    lap(NETWORK)


def _update(optimizer: torch.optim.SGD, case: str) -> None:
    """As the training loop does it: the gradient's length tells whether it is finite."""
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(grads))
    if not norm < float("inf"):
        raise NonFiniteTrainingError(
            f"bench step: expected finite gradients with {case}, got a length of {norm}; try other --weights."
        )
    optimizer.step()
    optimizer.zero_grad()


# --- what came of it --------------------------------------------------------------------------------------------------


def _row(group: str, case: str, rounds: Sequence[_Round], batch: int) -> Row:
    """Medians of the parts; the matrix function is what the head takes longer than the bare one, round by round."""
    steps, bare = ([one.steps[name] for one in rounds] for name in (case, BARE))

    def an_image(times: Sequence[float]) -> float:
        return statistics.median(times) / batch

    matrix = [own[HEAD] - other[HEAD] for own, other in zip(steps, bare, strict=True)]
    whole = [sum(own.values()) for own in steps]
    shares = [a / b for a, b in zip(matrix, whole, strict=True)]
    parts = {
        "wait_ms": an_image([own[WAIT] for own in steps]),
        "network_ms": an_image([own[NETWORK] for own in steps]),
        "pooling_ms": an_image([other[HEAD] for other in bare]),
        "matrix_ms": an_image(matrix),
        "classifier_ms": an_image([own[CLASSIFIER] for own in steps]),
        "update_ms": an_image([own[UPDATE] for own in steps]),
    }
    step_ms = sum(parts.values())
    return Row(
        group, case, ", ".join(HEADS[case].normalize), statistics.median(one.alone_ms for one in rounds), **parts,
        step_ms=step_ms,
        share=parts["matrix_ms"] / step_ms, share_spread=(max(shares) - min(shares)) / 2, spread=Clock(whole).spread,
    )  # fmt: skip


def to_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as dictionaries, the machine and versions beside every one."""
    about = machine.describe()
    return [{**asdict(row), **about} for row in rows]
