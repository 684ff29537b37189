"""Benchmarks: ratios within one run, errors against float64, files written whole or not at all.

A benchmark is a module of this folder with `run`, which measures and returns one record per row of its tables, and
`LAYOUT`, the columns of the records and how they are shown; `remarks`, if it has them, say and do what has to come
before the first measurement. The registry has its settings; torch and all the rest are imported when it is loaded.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..progress import Progress, silent
from .settings import Extract, Matfun, Pooling, Scale, Settings, Step, Svm

BENCHMARKS: dict[str, type[Settings]] = {
    "matfun": Matfun,
    "pooling": Pooling,
    "extract": Extract,
    "svm": Svm,
    "scale": Scale,
    "step": Step,
}


def load(name: str) -> Any:
    """The module of the benchmark of that name."""
    return import_module(f".{name}", __name__)


def measure(name: str, settings: Settings, progress: Progress = silent) -> list[dict[str, Any]]:
    """The records of a run: what it leaves out is not known; the machine and the versions are beside every one."""
    from .. import machine

    module = load(name)
    unknown, about = dict.fromkeys(column.key for column in module.LAYOUT.columns), machine.facts()
    return [{**unknown, **record, **about} for record in module.run(settings, progress)]
