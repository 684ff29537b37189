"""Table 4: every method there is here beside all rows of the paper (Sec. 3.6).

The paper's rows are printed as they are, fine-tuned each in its own way. Ours: every preset with the frozen network,
and what can be fine-tuned after that.

Run:      bcnn reproduce table4_prior_work --data cub=PATH --networks vgg16 --no-finetune
Cost:     on 2,734 images, two cores: 7 min with VGG-16, once the images are described (80 min); fine-tuned, AlexNet,
          224 pixels, 15 epochs: 13 min a run
Expected: experiments/paper/table4_prior_work.csv (Birds, Improved B-CNN, VGG-D: 85.8)
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pooling import POOLINGS
from ..pooling.bilinear import DEFAULT_EPS
from ..pooling.head import PAPERS, PRESETS, HeadConfig, ridge_in
from ..report.document import Table
from ..report.tables import interval
from . import paper
from .contract import Block, Cell, Experiment, jobs_of
from .jobs.frozen import Frozen, frozen
from .jobs.tuned import tuned
from .records import Subject
from .results import Results
from .tables import NONE, NOT_RUN, found_of, measured, ours_text, protocol_of, reasons, recipe_of, title_of

TUNED = {
    "bcnn": "bcnn",
    "improved_bcnn": "lyapunov",
    "improved_bcnn, unrolled": "unrolled",
    "o2p": "log",
    "matrix power 0.3": "power",
}


def preset(subject: Subject, head: HeadConfig) -> Frozen:
    """The job of a preset; every job names a ridge, of use or not."""
    eps = ridge_in(head)
    return frozen(subject, head.normalize, DEFAULT_EPS if eps is None else eps, POOLINGS.read(head.pooling).name)


def cells(subject: Subject) -> list[Cell]:
    """Frozen presets, then fine-tuned ones."""
    before = [Cell((name, "frozen"), (preset(subject, PRESETS[name]),)) for name in PAPERS]
    return before + [Cell((name, "fine-tuned"), tuned(subject, scheme)) for name, scheme in TUNED.items()]


def _rows(results: Results, subject: Subject) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for cell in cells(subject):
        is_tuned = cell.labels[1] == "fine-tuned"
        size = subject.tuned_size if is_tuned else subject.size
        state = f"fine-tuned, {subject.epochs} epochs{recipe_of(subject)}" if is_tuned else "frozen"
        network = paper.network_title(subject.network)
        network += "" if subject.weights == "default" else f", weights {subject.weights}"
        sure = interval(*own.interval) if (own := measured(results, cell)) else ""
        rows.append((cell.labels[0], state + protocol_of(subject), network, f"{size}", ours_text(results, cell), sure))
    return rows


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """The paper's table, then ours, one table per dataset."""
    names = [line["dataset"] for line in paper.table("datasets")]
    columns = ("method", "network", "train", "test", *names)
    printed = tuple(tuple(line[column] or NONE for column in columns) for line in paper.table("table4_prior_work"))
    header = ("method", "network", "annotation, train", "test", *(paper.dataset_title(name) for name in names))
    found: list[Block] = [Table("The paper's", header, printed, num_labels=4)]
    shown = found_of(results, subjects, jobs_of(cells))
    for dataset in dict.fromkeys((subject.dataset, subject.images) for subject in shown):
        own = [subject for subject in shown if (subject.dataset, subject.images) == dataset]
        found.append(_table(results, own))
    return found if shown else []


def _table(results: Results, subjects: Sequence[Subject]) -> Table:
    rows = list(dict.fromkeys(row for subject in subjects for row in _rows(results, subject)))
    kept = [row for row in rows if row[4] != NOT_RUN or not _is_run_elsewhere(row, rows)]
    title = title_of(results, subjects[0], subjects[0].size).partition(";")[0]
    header = ("method", "network is", "network", "px", "ours", "95 % interval")
    faint = frozenset((i, 4) for i, row in enumerate(kept) if row[4] == NOT_RUN)
    why = reasons(results, [cell for subject in subjects for cell in cells(subject)])
    return Table(f"Ours: {title}", header, tuple(kept), num_labels=3, faint=faint, note=why)


def _is_run_elsewhere(row: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> bool:
    """Subjects may differ in how far they are fine-tuned alone: a gap of one that another fills is none."""

    def key(some: tuple[str, ...]) -> tuple[str, ...]:
        return some[:4] if some[1].startswith("frozen") else (some[0], some[1].partition(",")[0], some[2])

    return any(key(other) == key(row) and other[4] != NOT_RUN for other in rows)


EXPERIMENT = Experiment("Table 4", __doc__, jobs_of(cells), blocks)
