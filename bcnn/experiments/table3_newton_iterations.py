"""Table 3: Newton iterations in the place of the SVD, and gradients of the square root after fine-tuning (Sec. 3.5).

Left: accuracy of frozen networks, and time, after 0, 1, 5, 10 and 20 iterations of Eq. (9), and with the SVD.
Right: Lyapunov gradients, SVD gradients and "Faster", fine-tuned. "A faster scheme where the matrix square-root layer
is ignored during fine-tuning" can be read in two ways, and both are here: trained without the root, which is put in
afterwards; and with the root forwards, its gradient taken for the identity. Unrolled iterations, which the paper leaves
to future work, stand beside them.

Run:      bcnn reproduce table3_newton_iterations --data cub=PATH --networks vgg16 --no-finetune
Cost:     on 2,734 images, two cores: left, 23 min with VGG-16, once the images are described (80 min); right, AlexNet,
          224 pixels, 15 epochs, three seeds: 160 min
Expected: experiments/paper/table3_newton_iterations.csv (Birds: 80.1, 81.7, 83.0, 82.9, 82.8, 82.8; 85.8, 85.5, 85.3)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..report.document import Table
from .contract import Block, Cell, Experiment
from .jobs import Job
from .jobs.forward_time import ForwardTime
from .jobs.frozen import frozen
from .jobs.source import source_of
from .jobs.tuned import tuned
from .paper import printed
from .records import Subject
from .results import Results
from .table1_normalization import SQRT_EPS, job
from .tables import NONE, accuracy_blocks, found_of, title_of

ITERATIONS = (1, 5, 10, 20)
FORWARD = {str(n): f"matrix_sqrt(forward='newton_schulz', num_iters={n})" for n in ITERATIONS}
FORWARD["SVD"] = "matrix_sqrt(forward='svd', precision='fast')"  # single precision, as in the paper
# Ours besides: an eigendecomposition, in float32, and in float64, which a head takes on a processor.
OTHERS = {
    "eigen": "matrix_sqrt(forward='eigen', precision='fast')",
    "eigen, float64": "matrix_sqrt(forward='eigen', precision='high')",
}

NOTE = (
    "SVD: truncated, steps that are not finite left out, as the paper does. Identity gradient: learning rate 0.0001 "
    "instead of 0.001, at which it diverges within an epoch."
)
LEFT, RIGHT = "iterations", "gradients, after fine-tuning"
SCHEMES = {"LYAP": "lyapunov", "SVD": "svd_truncated", "Faster: identity gradient": "identity", "unrolled": "unrolled"}


def left(subject: Subject) -> list[Cell]:
    """The left half: accuracy of frozen networks."""
    roots = {name: frozen(subject, (text, "signed_sqrt", "l2"), SQRT_EPS) for name, text in FORWARD.items()}
    heads = {"0": job(subject, "sgnsqrt"), **roots}
    return [Cell((name,), (own,), _printed(subject, "forward", name), part=LEFT) for name, own in heads.items()]


def right(subject: Subject) -> list[Cell]:
    """Accuracy after fine-tuning; the plain B-CNN first."""
    base = tuned(subject, "bcnn")
    without = tuple(
        replace(job(subject, "sqrt + sgnsqrt"), source=replace(source_of(subject), size=own.size, tuned=own))
        for own in base
    )
    cells = [
        Cell(("no square root at all",), base, part=RIGHT,
             paper=printed("table2_finetuning", subject.dataset, network=subject.network, normalization="sgnsqrt",
                           when="after")),
        *(Cell((name,), tuned(subject, scheme), _printed(subject, "backward", name), part=RIGHT)
          for name, scheme in SCHEMES.items()),
        Cell(("Faster: no square root in training",), without, _printed(subject, "backward", "Faster"), part=RIGHT),
    ]  # fmt: skip
    return [cells[i] for i in (0, 1, 2, 5, 3, 4)]  # both readings side by side


def _printed(subject: Subject, part: str, column: str) -> float | None:
    column = column.partition(":")[0]
    return printed("table3_newton_iterations", subject.dataset, network=subject.network, part=part, column=column)


def time_job(subject: Subject) -> ForwardTime:
    """The job for the times, the last line of the left half."""
    methods = (*OTHERS.values(), *FORWARD.values())
    return ForwardTime(source_of(subject), methods, SQRT_EPS, subject.device, subject.threads)


def jobs(subject: Subject) -> list[Job[Any]]:
    """The jobs of both halves."""
    return [*(job for cell in (*left(subject), *right(subject)) for job in cell.jobs), time_job(subject)]


TIMES_NOTE = (
    "The paper's: one matrix at a time on an NVIDIA Titan X, 512 x 512. Ours: medians over rounds in which every "
    "method has its turn; spread: half the range of the rounds. On a processor products cost as much as "
    "decompositions; on a GPU they do not."
)


def _times(results: Results, subject: Subject, note: str) -> Table:
    own, machine = results.get(time_job(subject)), results.measurements[time_job(subject)].versions["machine"]
    assert own is not None
    rows = [("0", _paper_ms("0"), "0", "", "0")]  # nothing is computed
    for name in (*FORWARD, *OTHERS):
        i = [*OTHERS, *FORWARD].index(name)
        ours = (f"{own.time_ms[i]:.2f}", f"± {100 * own.spread[i]:.0f} %", f"{own.ratio[i]:.2f}")
        rows.append((name, _paper_ms(name), *ours))
    about = f"d = {own.dim}, {own.batch} matrices at a time, float32, {subject.device}, {subject.threads} threads"
    return Table(
        f"{title_of(results, subject, subject.size)}; time of the square root, {about}, {machine}",
        ("iterations", "paper, ms", "ours, ms a matrix", "spread", "ours, of the SVD's"), tuple(rows),
        note=note,
    )  # fmt: skip


def _paper_ms(column: str) -> str:
    found = printed("table3_newton_iterations", "time_ms", part="forward", column=column)
    return NONE if found is None else f"{found:g}"


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """The left half, its times, and the right half."""
    timed = found_of(results, subjects, lambda own: [time_job(own)])
    found = accuracy_blocks(left, ["iterations"])(results, subjects)
    found += [_times(results, subject, "" if i else TIMES_NOTE) for i, subject in enumerate(timed)]
    return found + accuracy_blocks(right, ["gradient"], size="tuned_size", note=NOTE)(results, subjects)


EXPERIMENT = Experiment("Table 3", __doc__, jobs, blocks)
