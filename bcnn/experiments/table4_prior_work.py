"""Table 4: every method there is here beside all rows of the paper (Sec. 3.6).

The paper's rows are printed as they are, fine-tuned each in its own way. Ours: every preset with the frozen network,
and what can be fine-tuned after that.

Run:      bcnn reproduce table4_prior_work --data cub=PATH --networks vgg16 --no-finetune
Cost:     see docs/reproduction.md
Expected: experiments/paper/table4_prior_work.csv (Birds, Improved B-CNN, VGG-D: 85.8)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pooling.head import PRESETS
from ..report.document import Table
from . import paper
from .contract import Block, Cell, Experiment, Subject, jobs_of
from .jobs.frozen import Frozen, source_of
from .jobs.tuned import tuned
from .results import Results
from .tables import NONE, NOT_RUN, measured, title_of

TUNED = {
    "bcnn": "bcnn",
    "improved_bcnn": "lyapunov",
    "improved_bcnn, unrolled": "unrolled",
    "o2p": "log",
    "matrix power 0.3": "power",
}


def cells(subject: Subject) -> list[Cell]:
    """Frozen presets, then fine-tuned ones."""
    frozen = [
        Cell((name, "frozen"), (Frozen(source_of(subject), head.normalize, head.eps, head.pooling),))
        for name, head in PRESETS.items()
    ]
    return frozen + [Cell((name, "fine-tuned"), tuned(subject, scheme)) for name, scheme in TUNED.items()]


def _rows(results: Results, subject: Subject) -> list[tuple[str, ...]]:
    rows = []
    for cell in cells(subject):
        size = subject.size if cell.labels[1] == "frozen" else subject.tuned_size
        own = measured(results, cell)
        numbers = (
            (NOT_RUN, "") if own is None else (own.text, "{:.1f} to {:.1f}".format(*(100 * x for x in own.interval)))
        )
        rows.append((*cell.labels, paper.network_title(subject.network), f"{size}", *numbers))
    return rows


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """The paper's table, then ours, a table a dataset."""
    names = [line["dataset"] for line in paper.table("datasets")]
    lines = paper.table("table4_prior_work")
    printed = tuple(
        (
            line["method"],
            line["network"],
            line["train"] or NONE,
            line["test"] or NONE,
            *(line[n] or NONE for n in names),
        )
        for line in lines
    )
    header = ("method", "network", "annotation, train", "test", *(paper.dataset_title(name) for name in names))
    found: list[Block] = [Table("The paper's", header, printed, num_labels=4)]
    shown = [s for s in subjects if any(measured(results, cell) is not None for cell in cells(s))]
    for images in dict.fromkeys(subject.images for subject in shown):
        own = [subject for subject in shown if subject.images == images]
        rows = [row for subject in own for row in dict.fromkeys(_rows(results, subject))]
        found.append(_table(results, own, rows))
    return found if shown else []


def _table(results: Results, subjects: Sequence[Subject], rows: Sequence[tuple[str, ...]]) -> Table:
    title = title_of(results, subjects[0], subjects[0].size).partition(";")[0]
    header = ("method", "network is", "network", "px", "ours", "95 % interval")
    kept = [row for row in dict.fromkeys(rows) if row[4] != NOT_RUN or not _is_run_elsewhere(row, rows)]
    faint = frozenset((i, 4) for i, row in enumerate(kept) if row[4] == NOT_RUN)
    return Table(f"Ours: {title}", header, tuple(kept), num_labels=3, faint=faint)


def _is_run_elsewhere(row: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> bool:
    """Two subjects may differ in what they are fine-tuned at alone; a gap of one that the other fills is none."""
    return any(other[:3] == row[:3] and other[4] != NOT_RUN for other in rows)


EXPERIMENT = Experiment("Table 4", __doc__, jobs_of(cells), blocks, tunes=True)
