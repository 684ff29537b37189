"""Table 4: every system there is here beside all rows of the paper (Sec. 3.6).

The paper's rows are printed as they are, fine-tuned each in its own way. Ours: every system with the frozen network,
all on the same images, features and classifier; then what is fine-tuned. Accuracy is drawn against the width of the
descriptor and against time.

Run:      bcnn reproduce table4_prior_work --data cub=PATH --networks vgg16 --no-finetune
Cost:     a network sees every image and its flip once for most systems, once more for two networks and for a front;
          SVMs take a minute or two each; fine-tuned, AlexNet, 224 pixels, 15 epochs: 13 min a run
Expected: experiments/paper/table4_prior_work.csv (Birds, Improved B-CNN, VGG-D: 85.8)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..pooling import POOLINGS
from ..pooling.bilinear import DEFAULT_EPS
from ..pooling.head import PAPERS, PRESETS, HeadConfig, ridge_in
from ..report.document import Picture, Table, picture_of
from ..report.tables import interval
from . import paper
from .contract import Block, Cell, Experiment, jobs_of
from .jobs.frozen import Frozen, frozen
from .jobs.system import SystemResult
from .jobs.tuned import tuned
from .records import Subject
from .results import Results
from .systems import SYSTEMS, rows_of
from .tables import (
    NONE,
    NOT_RUN,
    Measured,
    found_of,
    gain_over,
    measured,
    ours_text,
    protocol_of,
    reasons,
    recipe_of,
    title_of,
)  # fmt: skip

FROZEN, TUNED_STATE = "frozen", "fine-tuned"
TUNED = {
    "bcnn": "bcnn",
    "improved_bcnn": "lyapunov",
    "improved_bcnn (unrolled)": "unrolled",
    "o2p": "log",
    "matrix power 0.3": "power",
    "cbp": "cbp",
    "lrbp": "lrbp",
    "kernel": "kernel",
    "two networks": "two",
    "stn": "stn",
    "isqrt_cov": "isqrt_cov",
    "democratic": "democratic",
}
NAMES = tuple(dict.fromkeys((*SYSTEMS, *TUNED)))  # what `bcnn reproduce --systems` takes
NOTE = (
    "Gain: over the plain B-CNN with the same network, on the same images: paired bootstrap and McNemar's test. "
    "Width: numbers per view of an image. Weights: thousands of parameters after the network, classifier included. "
    "Milliseconds per view on the machine of the measurement, pooling and normalizations alone and with the network. "
    "Memory: the most that tensors besides the weights hold at once for one view, in MB, likewise."
)
COSTS = ("width", "weights, 1000", "head, ms", "in all, ms", "head, MB", "in all, MB")


def preset(subject: Subject, head: HeadConfig) -> Frozen:
    """The job of a preset of Table 1; every job names a ridge, of use or not."""
    eps = ridge_in(head)
    return frozen(subject, head.normalize, DEFAULT_EPS if eps is None else eps, POOLINGS.read(head.pooling).name)


def cells(subject: Subject) -> list[Cell]:
    """Frozen systems, then fine-tuned ones, as far as they are wanted."""
    return [cell for cell in every_cell(subject) if not subject.systems or cell.labels[0] in subject.systems]


def every_cell(subject: Subject) -> list[Cell]:
    """All that there are; with the paper's ridge, the frozen ones are the presets of Table 1 alone."""
    if subject.ridge == "ours":
        before = [Cell((name, FROZEN), (row.job(subject),)) for name, row in rows_of(subject).items()]
    else:
        before = [Cell((name, FROZEN), (preset(subject, PRESETS[name]),)) for name in PAPERS]
    return before + [Cell((name, TUNED_STATE), tuned(subject, scheme)) for name, scheme in TUNED.items()]


def _found(results: Results, subject: Subject, cell: Cell) -> Cell:
    """The cell, or one with the same numbers from Table 1, if those are all that was measured."""
    name, state = cell.labels
    if state == FROZEN and name in PAPERS and measured(results, cell) is None:
        return Cell(cell.labels, (preset(subject, PRESETS[name]),))
    return cell


def _rows(results: Results, subject: Subject) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    own = [_found(results, subject, cell) for cell in cells(subject)]
    plain = [_found(results, subject, cell) for cell in every_cell(subject) if cell.labels[0] == "bcnn"]
    base = {cell.labels[1]: measured(results, cell) for cell in plain}
    network = paper.network_title(subject.network)
    network += "" if subject.weights == "default" else f", weights {subject.weights}"
    for cell in own:
        name, state = cell.labels
        size = subject.tuned_size if state == TUNED_STATE else subject.size
        if state == TUNED_STATE:
            state += f", {subject.epochs} epochs{recipe_of(subject)}"
        found = measured(results, cell)
        sure = interval(*found.interval) if found else ""
        gain = gain_over(found, base[cell.labels[1]])
        text = ours_text(results, cell)
        rows.append((name, state + protocol_of(subject), network, f"{size}", text, sure, *gain, *_costs(results, cell)))
    return rows


def _costs(results: Results, cell: Cell) -> tuple[str, ...]:
    """Width, weights, time and memory of the head and of all, of one view."""
    own: Any = next((found for job in cell.jobs if (found := results.get(job)) is not None), None)
    if own is None:
        return ("",) * len(COSTS)
    if not isinstance(own, SystemResult):
        return (f"{own.descriptor_length}", *[""] * (len(COSTS) - 1))
    memory = ("" if value is None else f"{value:.1f}" for value in (own.head_mb, own.image_mb))
    times = (f"{own.head_ms:.1f}", f"{own.network_ms + own.head_ms:.0f}")
    return f"{own.descriptor_length}", f"{own.num_parameters / 1000:.0f}", *times, *memory


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """The paper's table, then ours, one table per dataset, and accuracy against width and time."""
    names = [line["dataset"] for line in paper.table("datasets")]
    columns = ("method", "network", "train", "test", *names)
    printed = tuple(tuple(line[column] or NONE for column in columns) for line in paper.table("table4_prior_work"))
    header = ("method", "network", "annotation, train", "test", *(paper.dataset_title(name) for name in names))
    found: list[Block] = [Table("The paper's", header, printed, num_labels=4)]
    shown = found_of(results, subjects, _jobs_shown)
    for dataset in dict.fromkeys((subject.dataset, subject.images) for subject in shown):
        own = [subject for subject in shown if (subject.dataset, subject.images) == dataset]
        found.append(_table(results, own))
        found += _pictures(results, own)
    return found if shown else []


def _jobs_shown(subject: Subject) -> list[Any]:
    """Jobs of which one is enough for a subject to be shown: its own, and those of Table 1."""
    return [*jobs_of(cells)(subject), *(preset(subject, PRESETS[name]) for name in PAPERS)]


def _table(results: Results, subjects: Sequence[Subject]) -> Table:
    rows = list(dict.fromkeys(row for subject in subjects for row in _rows(results, subject)))
    kept = [row for row in rows if row[4] != NOT_RUN or not _is_run_elsewhere(row, rows)]
    title = title_of(results, subjects[0], subjects[0].size).partition(";")[0]
    gains = ("gain", "95 % interval", "p")
    header = ("method", "network is", "network", "px", "ours", "95 % interval", *gains, *COSTS)
    faint = frozenset((i, 4) for i, row in enumerate(kept) if row[4] == NOT_RUN)
    why = reasons(results, [cell for subject in subjects for cell in cells(subject)])
    return Table(f"Ours: {title}", header, tuple(kept), num_labels=3, faint=faint, note=f"{NOTE} {why}".strip())


def _is_run_elsewhere(row: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> bool:
    """Subjects may differ in how far they are fine-tuned alone: a gap of one that another fills is none."""

    def key(some: tuple[str, ...]) -> tuple[str, ...]:
        return some[:4] if some[1].startswith(FROZEN) else (some[0], some[1].partition(",")[0], some[2])

    return any(key(other) == key(row) and other[4] != NOT_RUN for other in rows)


# --- accuracy against cost --------------------------------------------------------------------------------------------


def _points(results: Results, subject: Subject) -> dict[str, tuple[Measured, SystemResult]]:
    """The frozen systems that were measured, by name."""
    found: dict[str, tuple[Measured, SystemResult]] = {}
    for cell in cells(subject):
        own: Any = results.get(cell.jobs[0])
        sure = measured(results, cell)
        if isinstance(own, SystemResult) and sure is not None:
            found[cell.labels[0]] = (sure, own)
    return found


def _pictures(results: Results, subjects: Sequence[Subject]) -> list[Picture]:
    """A panel against width and one against time, one colour per network."""
    from matplotlib.figure import Figure

    drawn = {subject: points for subject in subjects if len(points := _points(results, subject)) > 1}
    if not drawn:
        return []
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    against: dict[str, Callable[[SystemResult], float]] = {
        "numbers per view of an image": lambda own: own.descriptor_length,
        "ms per view of an image": lambda own: own.network_ms + own.head_ms,
    }
    for axes, (label, cost) in zip(figure.subplots(1, 2), against.items(), strict=True):
        for subject, points in drawn.items():
            spots = [(cost(own), 100 * sure.accuracy) for sure, own in points.values()]
            axes.plot(*zip(*spots, strict=True), "o", markersize=4, label=f"{subject.network} at {subject.size} px")
            for name, spot in zip(points, spots, strict=True):
                axes.annotate(name, spot, fontsize=6, xytext=(3, 2), textcoords="offset points")
        axes.set(xscale="log", xlabel=label, ylabel="accuracy %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    title = f"Accuracy against width and time: {paper.dataset_title(subjects[0].dataset)}, frozen networks"
    alt = "Points of accuracy against the width of descriptors, and against time per view, one per system."
    return [picture_of(figure, title=title, alt=alt, note="Times are of the machine of the measurement.")]


EXPERIMENT = Experiment("Table 4", __doc__, jobs_of(cells), blocks)
