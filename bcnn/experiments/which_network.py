"""Which network for me: accuracy against seconds an image, frozen networks with a few presets.

The paper has two networks; here is what decides between more of them on a machine without a GPU. In bold what no other
row beats both in accuracy and in time. Measurements are those of Table 4, and are done once for both.

Run:      bcnn reproduce which_network --data cub=PATH --networks alexnet,mobilenet_v2,efficientnet_lite0,resnet50,vgg16
Cost:     each network sees every image and its flip once: on 2,734 images and two cores 10 min with AlexNet, 1 h with
          VGG-16; SVMs take a minute or two each. ResNet-50's full descriptors take 46 GB
Expected: experiments/paper/table4_prior_work.csv has accuracies of two networks, after fine-tuning, and no times
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..report.document import Picture, Table, picture_of
from ..report.tables import interval, percent
from . import paper
from .contract import Block, Cell, Experiment, jobs_of
from .jobs.system import SystemResult
from .records import Subject
from .results import Results
from .systems import SYSTEMS
from .tables import Measured, found_of, gain_over, measured, protocol_of, title_of

CHOICES = ("average", "bcnn", "improved_bcnn", "cbp_sqrt")  # of which Table 4 has more
NOTE = (
    "Seconds: of one view of an image, network and head, on the machine of the measurement. Gain: over the first row, "
    "with the 95 % interval of a paired bootstrap over the images, and McNemar's p. Bold: no other row is both more "
    "accurate and faster."
)


class Row(NamedTuple):
    """A network with a preset, measured."""

    subject: Subject
    preset: str
    found: Measured
    own: SystemResult

    @property
    def seconds(self) -> float:
        """Of a view, network and head."""
        return (self.own.network_ms + self.own.head_ms) / 1000


def cells(subject: Subject) -> list[Cell]:
    """The presets, or those of them that are wanted."""
    names = [name for name in CHOICES if not subject.systems or name in subject.systems]
    return [Cell((name,), (SYSTEMS[name].job(subject),)) for name in names]


def rows(results: Results, subjects: Sequence[Subject]) -> list[Row]:
    """What is measured, the fastest first."""
    found = {}
    for subject in subjects:
        for cell in cells(subject):
            own, sure = results.get(cell.jobs[0]), measured(results, cell)
            if isinstance(own, SystemResult) and sure is not None:
                found[cell.jobs] = Row(subject, cell.labels[0], sure, own)
    return sorted(found.values(), key=lambda row: row.seconds)


def unbeaten(some: Sequence[Row]) -> list[Row]:
    """Those than which no other is more accurate and at most as slow, of rows that are sorted by time."""
    kept: list[Row] = []
    for row in some:
        if not kept or row.found.accuracy > kept[-1].found.accuracy:
            kept.append(row)
    return kept


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """A table and a picture per dataset."""
    found: list[Block] = []
    shown = found_of(results, subjects, jobs_of(cells))
    for dataset in dict.fromkeys((subject.dataset, subject.images) for subject in shown):
        own = rows(results, [subject for subject in shown if (subject.dataset, subject.images) == dataset])
        if own:
            found += [_table(results, own), _picture(own)]
    return found


def _table(results: Results, own: Sequence[Row]) -> Table:
    best = unbeaten(own)
    lines = tuple(
        (
            f"{paper.network_title(row.subject.network)}{protocol_of(row.subject)}", row.preset, f"{row.subject.size}",
            f"{row.seconds:.3f}", percent(row.found.accuracy), interval(*row.found.interval),
            *gain_over(row.found, own[0].found), f"{row.own.descriptor_length}",
            "" if row.own.image_mb is None else f"{row.own.image_mb:.0f}",
        )
        for row in own
    )  # fmt: skip
    header = (
        "network", "preset", "px", "s an image", "accuracy %", "95 % interval", "gain", "95 % interval", "p", "numbers",
        "memory, MB",
    )  # fmt: skip
    title = title_of(results, own[0].subject, own[0].subject.size).partition(";")[0]
    strong = frozenset((i, 4) for i, row in enumerate(own) if row in best)
    return Table(title, header, lines, num_labels=3, strong=strong, note=NOTE)


def _picture(own: Sequence[Row]) -> Picture:
    """A colour per network, a letter-sized name per point, and a line through what is not beaten."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.8), layout="constrained")
    axes = figure.subplots()
    for network in dict.fromkeys((row.subject.network, row.subject.size) for row in own):
        points = [row for row in own if (row.subject.network, row.subject.size) == network]
        spots = [(row.seconds, 100 * row.found.accuracy) for row in points]
        axes.plot(*zip(*spots, strict=True), "o", markersize=5, label=f"{network[0]} at {network[1]} px")
        for row, spot in zip(points, spots, strict=True):
            axes.annotate(row.preset, spot, fontsize=7, xytext=(4, 3), textcoords="offset points")
    best = [(row.seconds, 100 * row.found.accuracy) for row in unbeaten(own)]
    axes.plot(*zip(*best, strict=True), "-", color="0.7", zorder=0)
    axes.set(xscale="log", xlabel="seconds an image", ylabel="accuracy %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    title = f"Accuracy against seconds an image: {paper.dataset_title(own[0].subject.dataset)}, frozen networks"
    alt = "Points of accuracy against seconds an image, one per network and preset, and a line through the best."
    return picture_of(figure, title=title, alt=alt, note="The line joins what no other beats in both.")


EXPERIMENT = Experiment("Which network", __doc__, jobs_of(cells), blocks)
