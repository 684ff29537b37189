"""Tables of accuracies: the paper's, ours, the difference, and what of it can be told from chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..classify.accuracy import wilson
from ..classify.paired import mean_interval, paired_interval, paired_p
from ..report.document import Table
from . import paper
from .contract import Block, Cell, Subject
from .results import Results

NOT_RUN, NONE = "not run", "-"
NOTE = (
    "Accuracy in percent of the test images. Interval: 95 %, Wilson's, over several seeds a bootstrap over the images. "
    "Difference: ours minus the paper's. Gain: over the first row, the paper's and ours, with the 95 % interval of a "
    "paired bootstrap over the images, and the p-value of a paired test (McNemar's; random signs over several seeds)."
)


@dataclass(frozen=True)
class Measured:
    """Ours, of one cell."""

    accuracies: tuple[float, ...]  # one a seed
    right: NDArray[np.float64] | None  # share of right answers, an entry a test image; None where it was not kept
    num_test: int

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return mean(self.accuracies)

    @property
    def interval(self) -> tuple[float, float]:
        """Of chance in the test images."""
        if self.right is not None and len(self.accuracies) > 1:
            return mean_interval(self.right)
        return wilson(round(self.accuracy * self.num_test), self.num_test)

    @property
    def text(self) -> str:
        """In percent, with the spread over seeds."""
        spread = f" ± {100 * stdev(self.accuracies):.1f}" if len(self.accuracies) > 1 else ""
        return f"{100 * self.accuracy:.1f}{spread}"


def measured(results: Results, cell: Cell) -> Measured | None:
    """From the results of the seeds that are there; None where there are none, or a run failed."""
    found = [own for job in cell.jobs if (own := results.get(job)) is not None and own.get(cell.value) is not None]
    if not found:
        return None
    truths = {tuple(own.get("truth", ())) for own in found}
    right = None
    if cell.value == "accuracy" and len(truths) == 1 and truths != {()}:
        right = np.mean([np.equal(own["truth"], own["predicted"]) for own in found], axis=0)
    return Measured(tuple(own[cell.value] for own in found), right, found[0]["num_test"])


def failure(results: Results, cell: Cell) -> str | None:
    """Why there is no number although it was tried."""
    return next((own["failed"] for job in cell.jobs if (own := results.get(job)) and "failed" in own), None)


def title_of(results: Results, subject: Subject, size: int) -> str:
    """Dataset, as much of it as there is, and network."""
    about = results.datasets.get(subject.images, {})
    name = paper.dataset_title(subject.dataset)
    line = next((line for line in paper.table("datasets") if line["dataset"] == subject.dataset), None)
    classes, images = about.get("num_classes"), about.get("num_images")
    if line and about and (str(classes), str(images)) != (line["num_classes"], line["num_images"]):
        name += f", {classes} of {line['num_classes']} classes, {images} of {line['num_images']} images"
    elif about:
        name += f", {classes} classes, {images} images"
    return f"{name}; {paper.network_title(subject.network)} at {size} px"


def accuracy_blocks(
    cells: Callable[[Subject], Sequence[Cell]], labels: Sequence[str], *, size: str = "size", note: str = ""
) -> Callable[[Results, Sequence[Subject]], list[Block]]:
    """The tables of an experiment that consists of cells: as in the paper, then one a subject and part, in detail.

    Args:
        cells: of a subject.
        labels: headings of the cells' labels.
        size: the field of a subject that tells the size of the images.
        note: what else is to be said.
    """

    def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
        found: dict[tuple[Any, ...], Block] = {}  # by jobs: subjects may differ in what does not matter here
        for subject in subjects:
            title = title_of(results, subject, getattr(subject, size))
            for part, group in groupby(cells(subject), key=lambda cell: cell.part):
                some = list(group)
                key = tuple((cell.value, cell.jobs) for cell in some)
                if key not in found and any(measured(results, cell) is not None for cell in some):
                    said = "" if found else f"{NOTE} {note}".strip()  # once is enough
                    found[key] = accuracy_table(results, some, labels, f"{title}; {part}" if part else title, said)
        return [overview(results, subjects, cells, labels), *found.values()] if found else []

    return blocks


def overview(
    results: Results, subjects: Sequence[Subject], cells: Callable[[Subject], Sequence[Cell]], labels: Sequence[str]
) -> Table:
    """All cells that the paper or we have, in the paper's order: its number and ours, dataset by dataset."""
    datasets = _all_of("datasets", "dataset", [subject.dataset for subject in subjects])
    networks = _all_of("networks", "network", [subject.network for subject in subjects])
    rows = []
    for network in networks:
        columns = [_merged(results, subjects, cells, dataset, network) for dataset in datasets]
        if any(printed != NONE or ours != NOT_RUN for column in columns for printed, ours in column.values()):
            for key in columns[0]:
                pairs = [column[key] for column in columns]
                rows.append((paper.network_title(network), *key, *(text for pair in pairs for text in pair)))
    parts = any(row[1] for row in rows)
    heading = ("network", "", *labels) if parts else ("network", *labels)
    header = (*heading, *(f"{paper.dataset_title(d)}, {who}" for d in datasets for who in ("paper", "ours")))
    kept = tuple(row if parts else (row[0], *row[2:]) for row in rows)
    faint = frozenset((i, j) for i, row in enumerate(kept) for j, text in enumerate(row) if text == NOT_RUN)
    return Table("The paper and ours", header, kept, num_labels=len(heading), faint=faint)


def _all_of(table: str, column: str, ours: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*(line[column] for line in paper.table(table)), *ours]))


def _merged(
    results: Results,
    subjects: Sequence[Subject],
    cells: Callable[[Subject], Sequence[Cell]],
    dataset: str,
    network: str,
) -> dict[tuple[str, ...], tuple[str, str]]:
    """By part and labels, the paper's number and ours, from whichever subject has it."""
    own = [subject for subject in subjects if (subject.dataset, subject.network) == (dataset, network)]
    found: dict[tuple[str, ...], tuple[str, str]] = {}
    for subject in own or [Subject(dataset, "", network)]:
        for cell in cells(subject):
            printed, ours, *_ = _numbers(results, cell, measured(results, cell))
            key = (cell.part, *cell.labels)
            if key not in found or found[key][1] == NOT_RUN:
                found[key] = (printed, ours)
    return found


def accuracy_table(results: Results, cells: Sequence[Cell], labels: Sequence[str], title: str, note: str = "") -> Table:
    """One subject and part in detail; its first cell is what gains are counted from."""
    rows, faint = [], set()
    base = cells[0]
    own_base = measured(results, base)
    values = [measured(results, cell) for cell in cells]
    for i, (cell, own) in enumerate(zip(cells, values, strict=True)):
        rows.append((*cell.labels, *_numbers(results, cell, own), *_gain(cell, own, base, own_base, first=i == 0)))
        if own is None:
            faint.add((i, len(labels) + 1))
    known = [own.accuracy if own else -1.0 for own in values]
    best = {(known.index(max(known)), len(labels) + 1)} if max(known) > 0 and len(known) > 1 else set()
    header = (
        *labels,
        "paper",
        "ours",
        "95 % interval",
        "difference",
        "gain, paper",
        "gain, ours",
        "95 % interval",
        "p",
    )
    return Table(
        title=title, header=header, rows=tuple(rows), num_labels=len(labels), strong=frozenset(best),
        faint=frozenset(faint), note=note,
    )  # fmt: skip


def _numbers(results: Results, cell: Cell, own: Measured | None) -> tuple[str, str, str, str]:
    printed = NONE if cell.paper is None else f"{cell.paper:.1f}"
    if own is None:
        return printed, "failed" if failure(results, cell) else NOT_RUN, "", ""
    low, high = own.interval
    difference = "" if cell.paper is None else f"{100 * own.accuracy - cell.paper:+.1f}"
    missing = len(cell.jobs) - len(own.accuracies)
    text = own.text + (f" ({missing} of {len(cell.jobs)} seeds not run)" if missing else "")
    return printed, text, f"{100 * low:.1f} to {100 * high:.1f}", difference


def _gain(
    cell: Cell, own: Measured | None, base: Cell, own_base: Measured | None, *, first: bool
) -> tuple[str, str, str, str]:
    if first:
        return "", "", "", ""
    printed = "" if cell.paper is None or base.paper is None else f"{cell.paper - base.paper:+.1f}"
    if own is None or own_base is None:
        return printed, "", "", ""
    gain = f"{100 * (own.accuracy - own_base.accuracy):+.1f}"
    if own.right is None or own_base.right is None or len(own.right) != len(own_base.right):
        return printed, gain, "", ""
    low, high = paired_interval(own.right, own_base.right)
    return printed, gain, f"{100 * low:+.1f} to {100 * high:+.1f}", p_text(paired_p(own.right, own_base.right))


def p_text(p: float) -> str:
    """Two digits."""
    return f"{p:.2g}"


def found_of(results: Results, subjects: Sequence[Subject], jobs: Callable[[Subject], Sequence[Any]]) -> list[Subject]:
    """Subjects that have a result."""
    return [subject for subject in subjects if any(results.get(job) is not None for job in jobs(subject))]
