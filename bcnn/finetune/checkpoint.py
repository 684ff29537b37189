"""Where a training stands, in one file: written whole or not at all, and nothing executable in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from ..files import read_tensors, write_tensors
from ..metrics import Epoch, NonFinite, read_as

FORMAT = "bcnn-checkpoint"
LAST, BEST = "last.safetensors", "best.safetensors"


@dataclass
class State:
    """What is done; with the weights and momenta, all that a training needs to go on as if nothing had happened."""

    epoch: int = 1  # the one at work, from 1
    batch: int = 0  # the next one of this epoch, from 0
    loss_sum: float = 0.0  # over the images of this epoch so far
    num_right: int = 0
    num_seen: int = 0
    epoch_s: float = 0.0  # spent on this epoch, and of that on waiting for images
    wait_s: float = 0.0
    history: tuple[Epoch, ...] = ()  # the first is of the network before training
    best_epoch: int = 0
    nonfinite: tuple[NonFinite, ...] = ()
    num_in_a_row: int = 0  # steps skipped
    num_exceptions: int = 0  # matrices whose gradient met infinite or NaN entries
    num_sessions: int = 1

    @property
    def best(self) -> Epoch:
        """The record of the best epoch."""
        return next(record for record in self.history if record.epoch == self.best_epoch)


def save(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, state: State, identity: Any) -> None:
    """Write it; what was there before stays if that fails."""
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        momentum = optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{name}"] = momentum
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    about = {"format": FORMAT, "progress": json.dumps(asdict(state)), "identity": json.dumps(identity)}
    remedy = "The one before it is whole; make room and give the same command again, it goes on from there."
    write_tensors(path, tensors, about, who="finetune", remedy=remedy)


def load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, identity: Mapping[str, Any]) -> State | None:
    """Give model and optimizer the state in the file; None if there is none, an error if it is of another training."""
    if not path.exists():
        return None
    try:
        tensors, about = read_tensors(path)
    except SafetensorError as error:
        raise ValueError(
            f"{path}: expected a checkpoint of bcnn train, got: {error}; --no-resume begins anew."
        ) from None
    if about.get("format") != FORMAT:
        raise ValueError(f"{path}: expected a checkpoint of bcnn train, got another safetensors file.")
    # Earlier versions did not note the content of the images.
    stored = {"content": identity.get("content"), **json.loads(about["identity"])}
    differing = [name for name in {**stored, **identity} if stored.get(name) != identity.get(name)]
    if differing:
        name = differing[0]
        raise ValueError(
            f"finetune: expected {path} to be of the same configuration, got {name} {stored.get(name)!r} "
            f"instead of {identity.get(name)!r}; choose another --out, or --no-resume to begin anew."
        )
    state = read_as(State, json.loads(about["progress"]))
    own = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    if own.keys() != model.state_dict().keys():
        raise ValueError(
            f"{path}: expected the parameters of this network, got others, as earlier versions of bcnn called them; "
            "finish it with that version, or begin anew by --no-resume."
        )
    model.load_state_dict(own)
    for name, parameter in model.named_parameters():
        if f"momentum.{name}" in tensors:
            optimizer.state[parameter]["momentum_buffer"] = tensors[f"momentum.{name}"].to(parameter.device)
    state.num_sessions += 1
    return state
