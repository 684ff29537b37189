"""Everything that makes a fine-tuning, as plain data.

Paper: Sec. 3.2, "Training and evaluation": logistic regression first, then stochastic gradient descent with momentum,
50 to 100 epochs, learning rate 0.001, left-right flips. What it does not say is in the authors' scripts: `recipes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

from ..errors import unknown_name

VALIDATION, TEST = "validation", "test"
SCHEDULES = ("constant", "cosine", "step")
SELECT_ON = (VALIDATION, TEST)
SELECT_BY = ("loss", "accuracy")
ON_NONFINITE = ("stop", "skip")

# Change the way, not the result.
HOW = ("on_nonfinite", "checkpoint_minutes", "checkpoint_activations", "cache_frozen", "memory_gb", "devices", "nodes")

_AT_LEAST: Mapping[str, float] = MappingProxyType(
    {
        "epochs": 1, "batch_size": 1, "momentum": 0, "weight_decay": 0, "warmup_epochs": 0, "step_epochs": 1,
        "checkpoint_minutes": 0, "memory_gb": 0, "devices": 1, "nodes": 1, "val_share": 0,
    }
)  # fmt: skip
_ABOVE_ZERO = ("lr", "init_c", "step_factor", "clip")
_BELOW_ONE = ("momentum", "val_share")
_CHOICES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"schedule": SCHEDULES, "select_on": SELECT_ON, "select_by": SELECT_BY, "on_nonfinite": ON_NONFINITE}
)


@dataclass(frozen=True)
class FinetuneConfig:
    """What `bcnn train --finetune` takes besides the options of a run; the names are those of its options."""

    epochs: int = 50
    lr: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 16  # images a step, over all processes
    schedule: str = "constant"
    warmup_epochs: float = 0.0
    step_epochs: int = 30  # of schedule "step"
    step_factor: float = 0.1
    clip: float | None = None  # the largest length of the gradient
    lr_scale: tuple[str, ...] = ()  # "conv5=0.1", "classifier=10"
    decay_scale: tuple[str, ...] = ()  # "classifier=0"
    freeze_until: str | None = None
    val_share: float = 0.1  # of the training images; 0: none, the last epoch counts
    select_on: str = VALIDATION
    select_by: str = "loss"  # a few held-out images tell little by their accuracy
    init_c: float = 1.0  # of the logistic regression
    on_nonfinite: str = "stop"
    checkpoint_minutes: float = 10.0
    checkpoint_activations: bool = False
    compile: bool = False
    cache_frozen: bool = True
    memory_gb: float = 1.0  # of each process, for decoded images
    devices: int = 1
    nodes: int = 1

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise unknown_name("finetune", name, getattr(self, name), choices)
        for field in fields(self):
            self._check_number(field.name, getattr(self, field.name), whole=str(field.type) == "int")
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"finetune: expected warmup_epochs below epochs, got {self.warmup_epochs} and {self.epochs}."
            )
        _ = self.lr_factors, self.decay_factors

    def _check_number(self, name: str, value: Any, *, whole: bool) -> None:
        bounded = name in _AT_LEAST or name in _ABOVE_ZERO
        if not bounded or (value is None and name == "clip"):
            return
        kind = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, kind) or not math.isfinite(value):
            raise ValueError(f"finetune: expected {name} to be a {'whole ' if whole else ''}number, got {value!r}.")
        if name in _AT_LEAST and value < _AT_LEAST[name]:
            raise ValueError(f"finetune: expected {name} >= {_AT_LEAST[name]}, got {value}.")
        if name in _ABOVE_ZERO and value <= 0:
            raise ValueError(f"finetune: expected {name} > 0, got {value}.")
        if name in _BELOW_ONE and value >= 1:
            raise ValueError(f"finetune: expected {name} below 1, got {value}.")

    @property
    def lr_factors(self) -> dict[str, float]:
        """The learning rates of parts, relative to the others."""
        return self._factors("lr_scale")

    @property
    def decay_factors(self) -> dict[str, float]:
        """The weight decays of parts, relative to the others."""
        return self._factors("decay_scale")

    def _factors(self, option: str) -> dict[str, float]:
        factors: dict[str, float] = {}
        for text in getattr(self, option):
            part, _, number = str(text).partition("=")
            try:
                factors[part.strip()] = float(number)
            except ValueError:
                factors[part.strip()] = math.nan
            if not part.strip() or not 0 <= factors[part.strip()] < math.inf:
                raise ValueError(f"finetune: expected {option} such as 'conv5=0.1', got {text!r}.")
        return factors
