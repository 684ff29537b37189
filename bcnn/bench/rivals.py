"""Matrix functions of other packages, measured beside ours where they are installed: `pip install bcnn[rivals]`.

All of them go through an eigendecomposition in the precision of A. None is needed; nothing else imports them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

MatrixFunction = Callable[[Tensor], Tensor]


class Rival(NamedTuple):
    """A package, as it is called and as it is imported, and how its functions are found in it."""

    name: str
    module: str
    functions: dict[str, Callable[[object], MatrixFunction]]  # by the names of `bench.matfun.SCALARS`


def _attribute(path: str) -> Callable[[object], MatrixFunction]:
    def get(module: object) -> MatrixFunction:
        for name in path.split("."):
            module = getattr(module, name)
        return module  # type: ignore[return-value]

    return get


RIVALS = (
    Rival(
        "spd_learn",
        "spd_learn.functional",
        {"sqrt": _attribute("matrix_sqrt.apply"), "log": _attribute("matrix_log.apply")},
    ),
    Rival("POT", "ot.backend", {"sqrt": lambda module: module.TorchBackend().sqrtm}),  # type: ignore[attr-defined]
    Rival("geoopt", "geoopt.linalg", {"sqrt": _attribute("sym_sqrtm"), "log": _attribute("sym_logm")}),
    Rival("torch.linalg.matrix_sqrth", "torch.linalg", {"sqrt": _attribute("matrix_sqrth")}),  # from torch 2.14 on
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
            absent[rival.name] = "not installed"
        except AttributeError:
            absent[rival.name] = f"not in this version (torch {torch.__version__})"
    return found, absent


def missing() -> dict[str, str]:
    """Every rival that is left out, and why."""
    return {name: why for function in ("sqrt", "log") for name, why in find(function)[1].items()}
