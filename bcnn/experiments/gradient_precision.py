"""Precision of gradients (Sec. 3.5): "SVD gradients are orders of magnitude less precise than Lyapunov gradients".

Relative errors of the square root and of its gradient in float32 and float64, against a solution in extended precision:
on made-up matrices with the paper's spectrum (largest eigenvalue 10^6, ridge 1), rank-deficient ones, flat spectra; and
on pooled matrices of real images, with the ridge of `bcnn.Head` and with the paper's, 10^-6 of the largest eigenvalue.

Run:      bcnn reproduce gradient_precision --data cub=PATH --networks vgg16     (--smoke: a minute)
Cost:     6 min on two cores, once the images are described
Expected: experiments/paper/gradient_precision.csv, the authors' own figures
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..bench.regimes import REGIMES
from ..report.document import Table
from . import paper
from .contract import Block, Experiment
from .jobs.gradient_errors import GradientErrors, GradientErrorsResult
from .jobs.source import source_of
from .records import Subject
from .results import Results
from .table1_normalization import SQRT_EPS
from .tables import NONE, NOT_RUN, title_of

DTYPES = ("float32", "float64")
BATCH = 8
REAL = {"trace": SQRT_EPS, "top": 1e-6}  # the ridge of the head; the paper's
REAL_TITLES = {
    "trace": f"ridge {SQRT_EPS:g} of the trace",
    "top": "ridge 1e-6 of the largest eigenvalue, as in the paper",
}
NOTE = (
    "Relative errors in the Frobenius norm, the worst of the matrices whose result is finite; in brackets how many are "
    "not. Against a solution in 80-bit floating point. svd: Eq. (2) to (4); svd_truncated: with a threshold; lyapunov: "
    "Eq. (6), from the same SVD."
)
AUTHORS = (
    "The numbers are of the authors' repository matrix-sqrt, not of the paper: random covariances plus the identity, "
    "far better conditioned than pooled features, and errors relative to A, not to the gradient."
)


def made_up(subject: Subject) -> dict[str, list[GradientErrors]]:
    """The jobs for made-up matrices: one per regime and dtype."""
    return {name: [GradientErrors(name, dtype, BATCH, dim=subject.dim) for dtype in DTYPES] for name in REGIMES}


def real(subject: Subject) -> dict[str, list[GradientErrors]]:
    """By ridge, one job per dtype on pooled matrices of real images."""
    source = source_of(subject)
    return {
        name: [GradientErrors(name, dtype, BATCH, source=source, eps=eps) for dtype in DTYPES]
        for name, eps in REAL.items()
    }


def jobs(subject: Subject) -> list[GradientErrors]:
    """All jobs; the made-up ones are the same for every subject."""
    return [job for own in (made_up(subject), real(subject)) for some in own.values() for job in some]


def _table(results: Results, title: str, some: Sequence[GradientErrors], note: str) -> Table:
    found = {job.dtype: results.get(job) for job in some}
    methods = list(dict.fromkeys(e.method for own in found.values() if own for e in own.errors))
    rows = [(name, *(text for own in found.values() for text in _errors(own, name))) for name in methods]
    about = next(own for own in found.values() if own)
    header = ("method", *(f"{what}, {dtype}" for dtype in found for what in ("root", "gradient")))
    title += f"; d = {about.dim}, median condition {about.condition:.0e}"
    return Table(title, header, tuple(rows), note=note)


def _errors(own: GradientErrorsResult | None, method: str) -> tuple[str, str]:
    if own is None:
        return NOT_RUN, NOT_RUN
    error = next((e for e in own.errors if e.method == method), None)
    if error is None:
        return NONE, NONE
    bad = f" ({error.num_nonfinite} of {error.num_matrices} not finite)" if error.num_nonfinite else ""
    both = (error.root_error, error.gradient_error)
    root, gradient = ("none" if math.isnan(value) else f"{value:.1e}" for value in both)
    return root, gradient + bad


def blocks(results: Results, subjects: Sequence[Subject]) -> list[Block]:
    """What the authors say, made-up matrices, then real ones."""
    found: dict[GradientErrors, Block] = {}  # by the first of their jobs, which several subjects may have
    for subject in subjects:
        tables = {f"Made-up matrices, {name}": some for name, some in made_up(subject).items()}
        title = title_of(results, subject, subject.size)
        tables |= {f"{title}, {REAL_TITLES[name]}": some for name, some in real(subject).items()}
        for name, some in tables.items():
            if some[0] not in found and any(results.get(job) for job in some):
                found[some[0]] = _table(results, name, some, "" if found else NOTE)
    columns = ("source", "method", "root_error", "gradient_error")
    printed = tuple(tuple(line[name] for name in columns) for line in paper.table("gradient_precision"))
    said = Table("What the authors say", ("where", "method", "root", "gradient"), printed, num_labels=2, note=AUTHORS)
    return [said, *found.values()] if found else []


EXPERIMENT = Experiment("Precision of gradients", __doc__, jobs, blocks)
