"""A network in one file: tensors as safetensors, everything else as JSON in its header; nothing executable.

The header is readable in any text editor; years later the tensors and their meaning can be told without this package.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from .. import __version__
from ..data.preprocess import Preprocessing
from ..files import from_json, read_tensors, write_tensors
from ..pooling.head import HeadConfig, from_first_version
from .bcnn import BCNN, ModelConfig
from .branch import BranchConfig
from .build import skeleton
from .ensemble import Ensemble, EnsembleConfig

FORMAT = "bcnn-model"
VERSION = 2

Predictor = BCNN | Ensemble


def model_config(content: Mapping[str, Any]) -> ModelConfig:
    """A network's configuration from its JSON; an unknown field is an error, so that nothing is dropped in silence."""
    parts = dict(content)
    parts["head"] = from_json(HeadConfig, parts["head"])
    parts["branches"] = tuple(
        from_json(BranchConfig, {**branch, "preprocessing": from_json(Preprocessing, branch["preprocessing"])})
        for branch in parts["branches"]
    )
    return from_json(ModelConfig, parts)


def save(model: Predictor, path: str | Path, *, notes: dict[str, Any] | None = None) -> Path:
    """Write a network, or an ensemble of networks, to one .safetensors file, completely or not at all.

    Args:
        model: made by `build_model`, `Ensemble` or `load`.
        path: the file to write; its folder is created if necessary.
        notes: facts to keep with the network, such as class names or accuracy, as JSON can hold them; `read_notes`
            returns them.
    """
    if not isinstance(model, Predictor):
        raise TypeError(
            f"save: expected a network made by bcnn.build_model, got {type(model).__name__}; of a parallel wrapper "
            "pass its `module`, of a compiled one its `_orig_mod`."
        )
    config = model.live_config()
    copied = torch.contiguous_format  # a copy, since the members of an ensemble may share tensors
    tensors = {n: value.detach().cpu().clone(memory_format=copied) for n, value in model.state_dict().items()}
    again = _empty(config)
    problems = _differences(tensors, again.state_dict()) or _other_parts(model, again)
    if problems:
        raise ValueError(
            f"save: expected a network that bcnn.load can build again from its configuration, got {problems}; "
            "keep parts of your own outside of it, or save their state_dict beside it."
        )
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "kind": model.kind,
        "written_by": f"bcnn {__version__}",
        "config": json.dumps(asdict(config)),
        "notes": json.dumps(notes or {}),
    }
    write_tensors(Path(path), tensors, metadata, who="save", remedy="What was there before is whole; make room.")
    return Path(path)


def load(path: str | Path, *, device: str | torch.device = "cpu") -> Any:
    """Read what `save` has written, in evaluation mode; a wrong file is refused with the reason."""
    tensors, about = _read(Path(path))
    try:
        content = json.loads(about["config"])
        if int(about["version"]) == 1:
            content, tensors = first_config(content), renamed(tensors)
        config = _configuration(about.get("kind", "network"), content)
        with torch.device("meta"):  # nothing is allocated before it is known that the file holds what it announces
            problems = _differences(tensors, _empty(config).state_dict())
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        why = str(error).rstrip(".")
        raise ValueError(f"{path}: expected a configuration that this version knows, got {why}.") from None
    if problems:
        raise ValueError(f"{path}: expected the tensors of {config.backbone}, got {problems}.")
    model: Any = _empty(config)
    model.load_state_dict(tensors, assign=True)
    for module in model.modules():
        if hasattr(module, "frozen_until"):  # a backbone
            module.freeze_until(module.frozen_until)  # assigned parameters are new
    if isinstance(model, BCNN):
        model.temperature = _temperature(Path(path), _notes(Path(path), about))
    return model.to(device).eval()


def read_notes(path: str | Path) -> dict[str, Any]:
    """Return the notes that were saved together with a network."""
    return _notes(Path(path), _read(Path(path), tensors=False)[1])


def _notes(path: Path, about: Mapping[str, str]) -> dict[str, Any]:
    try:
        notes = json.loads(about["notes"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path}: expected notes as JSON in the header, got {error!r}.") from None
    if not isinstance(notes, dict):
        raise ValueError(f"{path}: expected notes as a JSON object in the header, got {type(notes).__name__}.")
    return notes


def _temperature(path: Path, notes: Mapping[str, Any]) -> float:
    """The number that scores are divided by to become logits."""
    given = notes.get("temperature", 1.0)
    if type(given) not in (int, float) or not 0 < given < math.inf:
        raise ValueError(f"{path}: expected a temperature > 0 in its notes, got {given!r}.")
    return float(given)


# --- what earlier versions wrote --------------------------------------------------------------------------------------

_RENAMED = {"backbone.": "branches.0.backbone.", "projection.": "branches.0.projection.", "classifier.": "scorer."}


def first_config(content: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of version 1, which had one branch, as one of today."""
    old = dict(content)
    branch = {name: old.pop(name) for name in ("backbone", "cut", "proj_dim", "weights", "preprocessing")}
    branch["freeze_until"] = old.pop("frozen_until")
    head = asdict(from_first_version(old["head"]))
    return {**old, "branches": [branch], "head": head, "front": None, "scorer": "linear"}


def renamed(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Parameters of version 1 under the names of today."""

    def name_of(old: str) -> str:
        start = next((start for start in _RENAMED if old.startswith(start)), "")
        return _RENAMED.get(start, "") + old.removeprefix(start)

    return {name_of(name): value for name, value in tensors.items()}


# --- the parts of it --------------------------------------------------------------------------------------------------


def _configuration(kind: str, content: Mapping[str, Any]) -> ModelConfig | EnsembleConfig:
    if kind == BCNN.kind:
        return model_config(content)
    if kind == Ensemble.kind:
        return EnsembleConfig(tuple(map(model_config, content["members"])), tuple(content["weights"]))
    raise ValueError(f"a model of kind {kind!r}")


def _empty(config: ModelConfig | EnsembleConfig) -> Predictor:
    """A network of that configuration; random numbers elsewhere are not disturbed."""
    with torch.random.fork_rng(devices=[]):
        if isinstance(config, ModelConfig):
            return skeleton(config)
        return Ensemble([skeleton(member) for member in config.members], config.weights)


def _differences(tensors: Mapping[str, torch.Tensor], own: Mapping[str, torch.Tensor]) -> str:
    """The first difference in names and shapes, and how many there are; empty if there is none."""
    problems = [f"{name} missing" for name in own if name not in tensors]
    problems += [f"{name} unknown" for name in tensors if name not in own]
    problems += [
        f"{name} of shape {tuple(tensors[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    return f"{problems[0]} ({len(problems)} in all)" if problems else ""


def _other_parts(model: nn.Module, again: nn.Module) -> str:
    """The first part that is of another kind, or has no tensors and other settings; empty if there is none."""

    def parts(module: nn.Module) -> dict[str, str]:
        every = dict(module.named_modules(remove_duplicate=False))
        settled = {name for name, part in every.items() if any(True for _ in part.parameters(recurse=False))}
        return {n: type(p).__name__ + ("" if n in settled else f"({p.extra_repr()})") for n, p in every.items()}

    own, expected = parts(model), parts(again)
    wrong = [name for name in {**own, **expected} if own.get(name) != expected.get(name)]
    return f"{own.get(wrong[0])} instead of {expected.get(wrong[0])} at {wrong[0]}" if wrong else ""


def _read(path: Path, *, tensors: bool = True) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"load: expected a file written by bcnn.save, got {path}, which is not there.")
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ValueError(f"{path}: expected a file written by bcnn.save, got another safetensors file.")
            if not about.get("version", "").isdigit() or int(about["version"]) > VERSION:
                raise ValueError(
                    f"{path}: expected format version {VERSION} or older, got {about.get('version')!r} "
                    f"(written by {about.get('written_by')}); install a newer bcnn."
                )
        return read_tensors(path) if tensors else ({}, about)
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file written by bcnn.save, got: {error}.") from None
