"""Matrix functions of other packages, measured beside ours where they are installed: `pip install bcnn[rivals]`.

All of them go through an eigendecomposition in the precision of A. None is needed; nothing else imports them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple

import torch

from .numerics import MatrixFunction


class Rival(NamedTuple):
    """A package, as it is called and as it is imported, and how its functions are found in it."""

    name: str
    module: str
    functions: dict[str, Callable[[Any], MatrixFunction]]  # by the names of `bench.matfun.SCALARS`


RIVALS = (
    Rival(
        "spd_learn",
        "spd_learn.functional",
        {"sqrt": attrgetter("matrix_sqrt.apply"), "log": attrgetter("matrix_log.apply")},
    ),
    Rival("POT", "ot.backend", {"sqrt": lambda module: module.TorchBackend().sqrtm}),
    Rival("geoopt", "geoopt.linalg", {"sqrt": attrgetter("sym_sqrtm"), "log": attrgetter("sym_logm")}),
    Rival("torch.linalg.matrix_sqrth", "torch.linalg", {"sqrt": attrgetter("matrix_sqrth")}),  # from torch 2.14 on
)


def find(function: str) -> tuple[dict[str, MatrixFunction], dict[str, str]]:
    """The rivals for a function by name, and why others are left out."""
    found: dict[str, MatrixFunction] = {}
    absent: dict[str, str] = {}
    for rival in RIVALS:
        if function not in rival.functions:
            continue
        try:
            found[rival.name] = rival.functions[function](importlib.import_module(rival.module))
        except ImportError:
            absent[rival.name] = "not installed; pip install 'bcnn[rivals]'"
        except AttributeError:
            absent[rival.name] = f"not in this version (torch {torch.__version__})"
    return found, absent


def missing() -> dict[str, str]:
    """Name every other package that is left out, and why."""
    return {name: why for function in ("sqrt", "log") for name, why in find(function)[1].items()}
