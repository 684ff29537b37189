"""Table 1: frozen networks with matrix logarithm, matrix square root, signed square root and combinations (Sec. 3.3).

Run:      bcnn reproduce table1_normalization --data cub=PATH --networks vgg16,alexnet     (--smoke: a minute)
Cost:     on 2,734 images, two cores: 11 min with VGG-16, 7 with AlexNet, once the images are described (80 and 7 min)
Expected: experiments/paper/table1_normalization.csv (Birds, VGG-D: 80.1, 77.9, 80.6, 81.1, 82.8)
"""

from __future__ import annotations

from ..pooling.head import PRESETS, ridge_in
from .contract import Cell, Experiment, jobs_of
from .jobs.frozen import Frozen, frozen
from .paper import printed
from .records import Subject
from .tables import accuracy_blocks

SQRT_EPS, LOG_EPS = (ridge_in(PRESETS[name]) or 0.0 for name in ("improved_bcnn", "o2p"))

# The l2 normalization comes last in all of them (Sec. 3.2); the ridges are those of the presets (docs/pooling.md).
NORMALIZATIONS: dict[str, tuple[tuple[str, ...], float]] = {
    "sgnsqrt": (("signed_sqrt", "l2"), 0.0),  # the B-CNN
    "log": (("matrix_log", "l2"), LOG_EPS),
    "sqrt": (("matrix_sqrt", "l2"), SQRT_EPS),
    "log + sgnsqrt": (("matrix_log", "signed_sqrt", "l2"), LOG_EPS),
    "sqrt + sgnsqrt": (("matrix_sqrt", "signed_sqrt", "l2"), SQRT_EPS),  # the improved B-CNN
}


def job(subject: Subject, normalization: str) -> Frozen:
    """The job that measures one row."""
    return frozen(subject, *NORMALIZATIONS[normalization])


def cells(subject: Subject) -> list[Cell]:
    """One row per normalization."""
    return [
        Cell(
            (name,), (job(subject, name),),
            printed("table1_normalization", subject.dataset, network=subject.network, normalization=name),
        )
        for name in NORMALIZATIONS
    ]  # fmt: skip


EXPERIMENT = Experiment("Table 1", __doc__, jobs_of(cells), accuracy_blocks(cells, ["normalization"]))
