"""Figure 2: accuracy of frozen networks against the exponent p of the matrix power A^p (Sec. 3.3).

Signed square root and l2 follow; p = 1 is the plain B-CNN, p = 1/2 the improved one. The paper draws the curves and
prints the numbers of p = 1/2 and p = 1 only, in Table 1.

Run:      bcnn reproduce figure2_exponent --data cub=PATH --networks vgg16     (--smoke: a minute)
Cost:     on 2,734 images, two cores: 25 min with VGG-16, 14 with AlexNet, once the images are described (80 and 7 min)
Expected: experiments/paper/figure2_exponent.csv; a maximum at p = 1/2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..report.document import Picture, picture_of
from . import paper
from .contract import Block, Cell, Experiment, jobs_of
from .jobs.frozen import Frozen, frozen
from .records import Subject
from .results import Results
from .table1_normalization import SQRT_EPS
from .table1_normalization import job as row
from .tables import accuracy_blocks, found_of, measured, protocol_of

EXPONENTS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


def _job(subject: Subject, p: float) -> Frozen:
    if p == 1.0:
        return row(subject, "sgnsqrt")
    if p == 0.5:
        return row(subject, "sqrt + sgnsqrt")
    return frozen(subject, (f"matrix_power({p})", "signed_sqrt", "l2"), SQRT_EPS)


def cells(subject: Subject) -> list[Cell]:
    """One row per exponent, the plain B-CNN first."""
    return [
        Cell(
            (f"{p:g}",), (_job(subject, p),),
            paper.printed("figure2_exponent", subject.dataset, network=subject.network, exponent=f"{p:g}"),
        )
        for p in EXPONENTS
    ]  # fmt: skip


def _picture(results: Results, subjects: Sequence[Subject]) -> Picture:
    """One curve per subject, one panel per dataset, and the paper's printed points."""
    from matplotlib.figure import Figure

    datasets = list(dict.fromkeys(subject.dataset for subject in subjects))
    figure = Figure(figsize=(4.6 * len(datasets) + 0.6, 3.6), layout="constrained")
    for axes, dataset in zip(figure.subplots(1, len(datasets), squeeze=False)[0], datasets, strict=True):
        for subject in subjects:
            if subject.dataset == dataset:
                _curve(axes, results, subject)
        axes.set_title(paper.dataset_title(dataset))
        axes.set_xlabel("exponent p")
        axes.set_ylabel("accuracy %")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return picture_of(
        figure, title="Accuracy against the exponent p", note="Bars: 95 % intervals (Wilson). Crosses: printed in the "
        "paper, on the whole of its datasets.", alt="Curves of accuracy against the exponent p from 0.1 to 1.",
    )  # fmt: skip


def _curve(axes: Any, results: Results, subject: Subject) -> None:
    own = [(p, m) for p, c in zip(EXPONENTS, cells(subject), strict=True) if (m := measured(results, c)) is not None]
    points = [100 * m.accuracy for _, m in own]
    bars = [[100 * abs(m.interval[side] - m.accuracy) for _, m in own] for side in (0, 1)]
    line = axes.errorbar(
        [p for p, _ in own], points, yerr=bars, marker="o", markersize=4, capsize=3,
        label=f"{subject.network} at {subject.size} px{protocol_of(subject)}",
    )  # fmt: skip
    printed = [(float(c.labels[0]), c.paper) for c in cells(subject) if c.paper is not None]
    if printed:
        axes.plot(*zip(*printed, strict=True), "x", color=line[0].get_color(), label=f"{subject.network}, paper")


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """The figure, followed by its numbers."""
    drawn = found_of(results, subjects, jobs_of(cells))
    return [_picture(results, drawn), *accuracy_blocks(cells, ["p"])(results, drawn)] if drawn else []


EXPERIMENT = Experiment("Figure 2", __doc__, jobs_of(cells), blocks)
