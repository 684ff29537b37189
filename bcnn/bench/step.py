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
Cost:     about a minute on two idle cores, by the times of its results
Expected: benchmarks/results/
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from ..data.contract import TRAIN, Sample
from ..descriptors.extract import ExtractOptions
from ..errors import GradientExceptionWarning, NonFiniteTrainingError
from ..finetune.config import FinetuneConfig
from ..finetune.module import Trained, make_optimizer, set_learning_rate
from ..finetune.plan import Item
from ..finetune.source import Pixels
from ..models.bcnn import BCNN, with_head
from ..models.build import build_model
from ..pooling.head import PRESETS, HeadConfig, make_config
from ..progress import Progress, silent
from ..report import figures
from ..report.tables import Column, Layout, Record, percent
from .settings import Step
from .timing import Clock

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Laps = dict[str, float]  # milliseconds per step, by part

BARE = "bcnn"  # the head without a matrix function
WAIT, NETWORK, HEAD, CLASSIFIER, UPDATE = "wait", "network", "head", "classifier", "update"
# The parts of a step in the order in which it comes to them: titles, columns and colours.
PARTS = {
    "waiting": ("wait_ms", "#bbbbbb"),  # for the next batch, decoded in the meantime
    "network": ("network_ms", "#1f77b4"),
    "pooling": ("pooling_ms", "#2ca02c"),  # with the normalizations of entries
    "matrix function": ("matrix_ms", "#d62728"),
    "classifier": ("classifier_ms", "#9467bd"),  # with the loss
    "update": ("update_ms", "#ff7f0e"),
}

_NUM_PHOTOGRAPHS = 8
_ALONE = 4  # batches that are decoded with nothing else running
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


class _Round(NamedTuple):
    """The times of one round."""

    alone_ms: float  # per image, decoded with nothing else running
    steps: dict[str, Laps]  # by head


@dataclass(frozen=True)
class _Training:
    """What the steps share: the models have one backbone and one classifier."""

    models: dict[str, BCNN]
    optimizer: torch.optim.SGD
    source: Pixels
    labels: Tensor  # (B,)

    def batches(self, count: int) -> Iterator[Tensor]:
        """Yield this many batches, with every second image mirrored."""
        batch = len(self.labels)
        items: list[Item] = [(i % _NUM_PHOTOGRAPHS, i % 2 == 1) for i in range(count * batch)]
        return self.source.batches(items, [batch] * count)


def run(settings: Step, progress: Progress = silent) -> list[dict[str, Any]]:
    """One record per head, after a round that does not count."""
    with tempfile.TemporaryDirectory(prefix="bcnn-bench-") as name, warnings.catch_warnings():
        warnings.simplefilter("ignore", GradientExceptionWarning)  # no matter of time
        training = _set_up(settings, Path(name))
        group = _title(training.models[BARE], settings)
        done, total = count(1), (settings.rounds + 1) * (len(HEADS) + 1)
        rounds = [_round(training, lambda: progress("steps", next(done), total)) for _ in range(settings.rounds + 1)]
    return [_record(group, case, rounds[1:], settings.batch_size) for case in HEADS]


def _set_up(settings: Step, folder: Path) -> _Training:
    model = build_model(
        BARE, backbone=settings.backbone, weights=settings.weights, num_classes=settings.num_classes,
        size=settings.size,
    )  # fmt: skip
    optimizer = make_optimizer(model, FinetuneConfig())
    set_learning_rate(optimizer, 0.0)
    options = ExtractOptions(batch=settings.batch_size)
    source = Pixels(_photographs(folder), model.preprocessing, options, memory_gb=0.0)
    labels = torch.randint(settings.num_classes, (settings.batch_size,), generator=torch.Generator().manual_seed(0))
    return _Training(models_of(model), optimizer, source, labels)


def models_of(model: BCNN) -> dict[str, BCNN]:
    """The network under every head, ready to be trained; all share its parameters."""
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    models = {case: with_head(model, config) for case, config in HEADS.items()}
    for other in models.values():
        other.scorer = model.scorer
        Trained(other).train()
    return models


def _title(model: BCNN, settings: Step) -> str:
    with torch.no_grad():
        _, d, height, width = model.maps(torch.zeros(1, 3, settings.size, settings.size))[0].shape
    return (
        f"a step of {settings.batch_size} images, {settings.backbone} at {settings.size} px, "
        f"d={d}, n={height * width}, {settings.num_classes} classes, weights {settings.weights or 'random'}"
    )


def _photographs(folder: Path) -> list[Sample]:
    """Files of soft noise in colours, as large as most photographs of CUB, some 50 kB each."""
    from PIL.Image import effect_noise, merge
    from PIL.ImageFilter import GaussianBlur

    samples = [Sample(f"{i}.jpg", 0, TRAIN, folder / f"{i}.jpg") for i in range(_NUM_PHOTOGRAPHS)]
    for sample in samples:
        colours = [effect_noise((500, 375), 64).filter(GaussianBlur(1.5)) for _ in range(3)]
        merge("RGB", colours).save(folder / sample.name, quality=90)
    return samples


def _round(training: _Training, step_is_done: Callable[[], None]) -> _Round:
    """Decoding alone, then a step with every head."""
    start = time.perf_counter()
    for _ in training.batches(_ALONE):
        pass
    alone_ms = 1e3 * (time.perf_counter() - start) / (_ALONE * len(training.labels))
    batches = training.batches(1 + len(training.models) + _SPARE)
    steps = {}
    for case in (BARE, *training.models):  # the first step does not count: from there on the threads are ahead
        steps[case] = _step(training, case, batches)
        step_is_done()
    return _Round(alone_ms, steps)


def _step(training: _Training, case: str, batches: Iterator[Tensor]) -> Laps:
    """One step of the training loop, timed."""
    laps, last = defaultdict[str, float](float), time.perf_counter()

    def lap(part: str) -> None:
        nonlocal last
        before, last = last, time.perf_counter()
        laps[part] += 1e3 * (last - before)

    images = next(batches)
    lap(WAIT)
    backward_in_parts(training.models[case], images, training.labels, lap)
    _update(training.optimizer, case)
    lap(UPDATE)
    return laps


def backward_in_parts(model: BCNN, images: Tensor, labels: Tensor, lap: Callable[[str], None]) -> None:
    """Do as ``cross_entropy(model(images), labels).backward()``, part by part.

    Each part takes the gradient that the next one leaves in its input; `lap` hears the name of each part when it has
    been worked on, forward and then backward. Images have the shape (B, 3, H, W), labels (B,).
    """
    (maps,) = model.maps(images)
    lap(NETWORK)
    cut_maps = maps.detach().requires_grad_()
    descriptors = model.head(cut_maps)
    lap(HEAD)
    cut_descriptors = descriptors.detach().requires_grad_()
    torch.autograd.backward(functional.cross_entropy(model.score(cut_descriptors).float(), labels))
    lap(CLASSIFIER)
    torch.autograd.backward(descriptors, cut_descriptors.grad)
    lap(HEAD)
    torch.autograd.backward(maps, cut_maps.grad)
    lap(NETWORK)


def _update(optimizer: torch.optim.SGD, case: str) -> None:
    """Do as the training loop does: the length of the gradient tells whether it is finite."""
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(grads))
    if not norm < float("inf"):
        raise NonFiniteTrainingError(
            f"bench step: expected finite gradients with {case}, got a length of {norm}; try other --weights."
        )
    optimizer.step()
    optimizer.zero_grad()


def _record(group: str, case: str, rounds: Sequence[_Round], batch: int) -> dict[str, Any]:
    """Medians of the parts; the matrix function is what the head takes longer than the bare one, round by round."""
    steps, bare = ([one.steps[name] for one in rounds] for name in (case, BARE))
    matrix = [own[HEAD] - other[HEAD] for own, other in zip(steps, bare, strict=True)]
    whole = [sum(own.values()) for own in steps]
    shares = [a / b for a, b in zip(matrix, whole, strict=True)]
    times = {f"{part}_ms": [own[part] for own in steps] for part in (WAIT, NETWORK, CLASSIFIER, UPDATE)}
    times |= {"pooling_ms": [other[HEAD] for other in bare], "matrix_ms": matrix}
    parts = {name: statistics.median(own) / batch for name, own in times.items()}
    step_ms = sum(parts.values())
    return {
        "group": group, "case": case, "normalize": ", ".join(HEADS[case].normalize),
        "data_alone_ms": statistics.median(one.alone_ms for one in rounds), **parts, "step_ms": step_ms,
        "share": parts["matrix_ms"] / step_ms, "share_spread": (max(shares) - min(shares)) / 2,
        "spread": Clock(whole).spread,
    }  # fmt: skip


def _plot(records: Sequence[Record]) -> Figure:
    """A bar per head, of the parts of its step; the share of the matrix function at the end."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.6 + 0.42 * len(records)), layout="constrained")
    axes = figure.subplots()
    names = [str(record["case"]) for record in records]
    ends = [0.0] * len(records)
    for label, (column, colour) in PARTS.items():
        widths = [max(0.0, float(record[column])) for record in records]
        bars = axes.barh(names, widths, left=ends, color=colour, label=label)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    axes.bar_label(bars, [f"{percent(record['share'])} %" for record in records], padding=3, fontsize=8)
    label = "ms per image; % of the step in the matrix function"
    figures.frame(axes, max(ends), label, LAYOUT.title(records[0]))
    figure.legend(loc="outside lower center", ncols=len(PARTS), fontsize=8, frameon=False)
    return figure


LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "head"),
        Column("normalize"),
        Column("data_alone_ms", "data alone", ".2f"),  # from files to a batch, nothing else running
        *(Column(key, title, ".2f") for title, (key, _) in PARTS.items()),
        Column("step_ms", "step", ".2f"),  # all parts together
        Column("share", "share, %", lambda record: percent(record["share"], record["share_spread"])),
        Column("share_spread"),  # half its range over the rounds
        Column("spread"),  # of the step
    ),
    note="Milliseconds per image, medians over the rounds, forward and backward; the step is the sum of its parts. "
    "Data alone: from JPEG files to a batch with nothing else running, no part of the step; waiting: what is "
    "left of it where threads decode while the network works. Pooling: with the normalizations of entries, "
    "as in bcnn in the same rounds; matrix function: what its head takes longer than that of bcnn. "
    "Classifier: with the loss. Update: length of the gradient, momentum, weight decay. Share: of the matrix "
    "function in the step, ± half its range over the rounds.",
    plot=_plot,
)
