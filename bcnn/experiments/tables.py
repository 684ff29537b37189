"""Tables of accuracies: the paper's, ours, the difference, and what of it can be told from chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from statistics import mean, stdev
from textwrap import shorten

import numpy as np
from numpy.typing import NDArray

from ..classify.accuracy import wilson
from ..classify.paired import mean_interval, paired_interval, paired_p
from ..report.document import Table
from ..report.tables import interval, percent
from . import paper
from .contract import Block, Cell, Cells, Jobs, jobs_of
from .records import Subject
from .results import Results

NOT_RUN, NONE = "not run", "-"
NOTE = (
    "Accuracy in percent of the test images. Interval: 95 %, Wilson's, over several seeds a bootstrap over the images. "
    "Difference: ours minus the paper's. Gain: over the first row, the paper's and ours, with the 95 % interval of a "
    "paired bootstrap over the images, and the p-value of a paired test (McNemar's; random signs over several seeds). "
    "To the best: p of the difference to the row in bold."
)


@dataclass(frozen=True)
class Measured:
    """Our numbers for one cell."""

    accuracies: tuple[float, ...]  # one per seed
    right: NDArray[np.float64] | None  # share of right answers, one entry per test image; None where it is not known
    num_test: int
    truth: tuple[int, ...] = ()  # true classes

    @property
    def accuracy(self) -> float:
        """The mean accuracy over the seeds."""
        return mean(self.accuracies)

    @property
    def interval(self) -> tuple[float, float]:
        """The interval for chance in the test images."""
        if self.right is not None and len(self.accuracies) > 1 and 0 < self.accuracy < 1:
            return mean_interval(self.right)
        return wilson(round(self.accuracy * self.num_test), self.num_test)  # a bootstrap of equal answers has no width

    @property
    def text(self) -> str:
        """The accuracy in percent, with the spread over the seeds."""
        return percent(self.accuracy, stdev(self.accuracies) if len(self.accuracies) > 1 else None)


def measured(results: Results, cell: Cell) -> Measured | None:
    """From the results of the seeds that are there; None where there are none, or a run failed."""
    found = [own for job in cell.jobs if (own := results.get(job)) and getattr(own, cell.value) is not None]
    if not found:
        return None
    accuracies, truth = tuple(getattr(own, cell.value) for own in found), found[0].truth
    if cell.value != "accuracy" or not truth or any(own.truth != truth for own in found):
        return Measured(accuracies, None, found[0].num_test)
    right = np.mean([np.equal(own.truth, own.predicted) for own in found], axis=0)
    return Measured(accuracies, right, found[0].num_test, truth)


def failures(results: Results, cell: Cell) -> list[str]:
    """Why there are no numbers although it was tried, one reason per seed."""
    return [why for job in cell.jobs if (why := results.failure(job)) is not None]


def ours_text(results: Results, cell: Cell) -> str:
    """Our number, or why there is none; seeds that failed or were not run are counted."""
    own, failed = measured(results, cell), len(failures(results, cell))
    missing = len(cell.jobs) - failed - (0 if own is None else len(own.accuracies))
    if own is None:
        return NOT_RUN if not failed else "failed" if not missing else f"failed, {missing} {NOT_RUN}"
    gaps = [f"{count} {what}" for count, what in ((failed, "failed"), (missing, NOT_RUN)) if count]
    return f"{own.text} (of {len(cell.jobs)} seeds {', '.join(gaps)})" if gaps else own.text


def reasons(results: Results, cells: Sequence[Cell]) -> str:
    """A sentence on each cell that failed; the results have it in full."""
    said = {cell.labels: failures(results, cell) for cell in cells}
    short = {labels: shorten(why[0], 150, placeholder=" ...") for labels, why in said.items() if why}
    return " ".join(f"{', '.join(labels)}: {why}" for labels, why in short.items())


def title_of(results: Results, subject: Subject, size: int, *, tuned: bool = False) -> str:
    """Dataset, as much of it as there is, network, its weights where they are not the usual ones, and its training."""
    name = paper.dataset_title(subject.dataset)
    line = next((line for line in paper.table("datasets") if line["dataset"] == subject.dataset), None)
    if about := results.datasets.get((subject.dataset, subject.images)):
        classes, images = about.num_classes, about.num_images
        if line and (str(classes), str(images)) != (line["num_classes"], line["num_images"]):
            name += f", {classes} of {line['num_classes']} classes, {images} of {line['num_images']} images"
        else:
            name += f", {classes} classes, {images} images"
    weights = "" if subject.weights == "default" else f", weights {subject.weights}"
    seeds = f", {len(subject.seeds)} seeds" if len(subject.seeds) > 1 else ""
    training = f", {subject.epochs} epochs{seeds}{recipe_of(subject)}" if tuned else ""
    return f"{name}; {paper.network_title(subject.network)} at {size} px{weights}{protocol_of(subject)}{training}"


def protocol_of(subject: Subject) -> str:
    """What of the paper's own is taken instead of ours."""
    whose = {"ours": "", "paper": ", the paper's ridge", "absolute": ", a ridge of 1"}[subject.ridge]
    said = f"{whose} and signed square root" if whose else ""
    said += f", SVMs rescaled by {subject.rescale}" if subject.rescale != "none" else ""
    return said if subject.flips else f"{said}, without mirror images"


def recipe_of(subject: Subject) -> str:
    """How it is fine-tuned, where that is not our way."""
    said = "" if subject.recipe == "ours" else f", recipe {subject.recipe}"
    return said + (f", frozen up to {subject.freeze_until}" if subject.freeze_until else "")


def accuracy_blocks(
    cells: Cells, labels: Sequence[str], *, size: str = "size", note: str = ""
) -> Callable[[Results, Sequence[Subject]], list[Block]]:
    """The tables of an experiment that consists of cells: as in the paper, then one per subject and part, in detail.

    Args:
        cells: of a subject.
        labels: headings of the cells' labels.
        size: the field of a subject that tells the size of the images.
        note: what else is to be said.
    """

    def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
        found: dict[object, Block] = {}  # by jobs: subjects may differ in what does not matter here
        subjects = widest(subjects, jobs_of(cells))

        def title_for(subject: Subject) -> str:
            return title_of(results, subject, getattr(subject, size), tuned=size == "tuned_size")

        for subject in subjects:
            title = title_for(subject)
            for part, group in groupby(cells(subject), key=lambda cell: cell.part):
                some = list(group)
                key = tuple((cell.value, cell.jobs) for cell in some)
                if key not in found and any(job in results for cell in some for job in cell.jobs):
                    said = "" if found else f"{NOTE} {note}".strip()  # once is enough
                    found[key] = accuracy_table(results, some, labels, f"{title}; {part}" if part else title, said)
        return [overview(results, subjects, cells, labels, title_for), *found.values()] if found else []

    return blocks


def overview(
    results: Results, subjects: Sequence[Subject], cells: Cells, labels: Sequence[str],
    title_for: Callable[[Subject], str],
) -> Table:  # fmt: skip
    """All cells that the paper or we have, in the paper's order: its number and ours, dataset by dataset."""
    datasets = _all_of("datasets", "dataset", [subject.dataset for subject in subjects])
    networks = _all_of("networks", "network", [subject.network for subject in subjects])
    rows = []
    places = [(dataset, network) for network in networks for dataset in datasets]
    chosen = {place: _fullest(results, subjects, cells, *place) for place in places}
    for network in networks:
        columns = [cells(chosen[dataset, network]) for dataset in datasets]
        found = [[_texts(results, cell) for cell in some] for some in zip(*columns, strict=True)]
        if any(pair != (NONE, NOT_RUN) for pairs in found for pair in pairs):
            for cell, pairs in zip(columns[0], found, strict=True):
                rows.append((paper.network_title(network), cell.part, *cell.labels, *chain.from_iterable(pairs)))
    parts = any(row[1] for row in rows)
    heading = ("network", "", *labels) if parts else ("network", *labels)
    header = (*heading, *(f"{paper.dataset_title(d)}, {who}" for d in datasets for who in ("paper", "ours")))
    kept = tuple(row if parts else (row[0], *row[2:]) for row in rows)
    faint = frozenset((i, j) for i, row in enumerate(kept) for j, text in enumerate(row) if text == NOT_RUN)
    ours = [title_for(subject) for subject in found_of(results, list(chosen.values()), jobs_of(cells))]
    note = f"Ours: {'. '.join(dict.fromkeys(ours))}."
    return Table("The paper and ours", header, kept, num_labels=len(heading), faint=faint, note=note)


def _all_of(table: str, column: str, ours: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*(line[column] for line in paper.table(table)), *ours]))


def _fullest(results: Results, subjects: Sequence[Subject], cells: Cells, dataset: str, network: str) -> Subject:
    """The subject of which there is most, the latest of equals."""

    def fullness(subject: Subject) -> tuple[int, int]:
        own = [measured(results, cell) for cell in cells(subject)]
        return sum(one is not None for one in own), sum(len(one.accuracies) for one in own if one is not None)

    own = [subject for subject in subjects if (subject.dataset, subject.network) == (dataset, network)]
    return max(reversed(own), key=fullness) if own else Subject(dataset, "", network)


def _texts(results: Results, cell: Cell) -> tuple[str, str]:
    """The texts of the paper's number and of ours."""
    return NONE if cell.paper is None else f"{cell.paper:.1f}", ours_text(results, cell)


def accuracy_table(results: Results, cells: Sequence[Cell], labels: Sequence[str], title: str, note: str = "") -> Table:
    """One subject and part in detail; its first cell is what gains are counted from."""
    base, values = cells[0], [measured(results, cell) for cell in cells]
    ours = len(labels) + 1
    known = [own.accuracy if own else -1.0 for own in values]
    top = known.index(max(known)) if max(known) > 0 and len(known) > 1 else None
    best = None if top is None else values[top]
    rows = []
    for cell, own in zip(cells, values, strict=True):
        sure = "" if own is None else interval(*own.interval)
        difference = _minus(None if own is None else 100 * own.accuracy, cell.paper)
        gain = ("" if cell is base else _minus(cell.paper, base.paper), *gain_over(own, values[0]))
        rows.append((*cell.labels, *_texts(results, cell), sure, difference, *gain, gain_over(own, best)[-1]))
    gains = ("gain, paper", "gain, ours", "95 % interval", "p", "p, to the best")
    header = (*labels, "paper", "ours", "95 % interval", "difference", *gains)
    return Table(
        title=title, header=header, rows=tuple(rows), num_labels=len(labels),
        strong=frozenset() if top is None else frozenset({(top, ours)}),
        faint=frozenset((i, ours) for i, own in enumerate(values) if own is None),
        note=f"{note} {reasons(results, cells)}".strip(),
    )  # fmt: skip


def _minus(left: float | None, right: float | None) -> str:
    return "" if left is None or right is None else f"{left - right:+.1f}"


def gain_over(own: Measured | None, base: Measured | None) -> tuple[str, str, str]:
    """Over another row: the difference and, where both have predictions of the same images, its interval and p."""
    if own is None or base is None or own is base:
        return "", "", ""
    gain = percent(own.accuracy - base.accuracy, sign="+")
    if own.right is None or base.right is None or own.truth != base.truth:
        return gain, "", ""
    same = np.array_equal(own.right, base.right)  # a bootstrap of no differences has no width
    sure = "" if same else interval(*paired_interval(own.right, base.right), sign="+")
    return gain, sure, f"{paired_p(own.right, base.right):.2g}"


def widest(subjects: Sequence[Subject], jobs: Jobs) -> list[Subject]:
    """Subjects without those that are part of another one, such as one seed of three."""
    sets = {subject: frozenset(jobs(subject)) for subject in subjects}
    return [subject for subject, own in sets.items() if not any(own < other for other in sets.values())]


def found_of(results: Results, subjects: Sequence[Subject], jobs: Jobs) -> list[Subject]:
    """The widest subjects that have a result; of those with the same jobs, the latest."""
    found = [subject for subject in subjects if any(job in results for job in jobs(subject))]
    return list({tuple(jobs(subject)): subject for subject in widest(found, jobs)}.values())
