"""A network in one file: tensors as safetensors, everything else as JSON in its header; nothing executable.

The header is readable in any text editor; years later the tensors and their meaning can be told without this package.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from .. import __version__
from ..data.preprocess import Preprocessing
from ..files import from_json, write_tensors
from ..pooling.head import Head, HeadConfig
from .backbones import make_backbone
from .backbones.contract import Backbone
from .backbones.timm import TimmBackbone
from .bcnn import BCNN, ModelConfig

FORMAT = "bcnn-model"
VERSION = 1


def save(model: BCNN, path: str | Path, *, notes: dict[str, Any] | None = None) -> Path:
    """Write a network to one .safetensors file, whole or not at all.

    Args:
        model: made by `build_model` or `load`.
        path: where to; the folder is made if need be.
        notes: JSON-able facts to keep with it (class names, accuracy, data); `read_notes` gives them back.
    """
    if not isinstance(model, BCNN):
        raise TypeError(
            f"save: expected a network made by bcnn.build_model, got {type(model).__name__}; of a parallel wrapper "
            "pass its `module`, of a compiled one its `_orig_mod`."
        )
    config = _live_config(model)
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    skeleton = _skeleton(config)
    problems = _differences(tensors, skeleton.state_dict()) or _other_parts(model, skeleton)
    if problems:
        raise ValueError(
            f"save: expected a network that bcnn.load can build again from its configuration, got {problems}; "
            "keep parts of your own outside of it, or save their state_dict beside it."
        )
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "written_by": f"bcnn {__version__}",
        "config": json.dumps(asdict(config)),
        "notes": json.dumps(notes or {}),
    }
    write_tensors(Path(path), tensors, metadata, who="save", remedy="What was there before is whole; make room.")
    return Path(path)


def load(path: str | Path, *, device: str | torch.device = "cpu") -> BCNN:
    """A network from a file of `save`, in evaluation mode; a wrong file is refused with the reason."""
    tensors, about = _read(Path(path))
    try:
        config = config_from(json.loads(about["config"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a configuration that this version knows, got {error}.") from None
    model = _skeleton(config)
    problems = _differences(tensors, model.state_dict())
    if problems:
        raise ValueError(f"{path}: expected the tensors of {config.backbone}, got {problems}.")
    model.load_state_dict(tensors, assign=True)
    backbone = model.backbone
    assert isinstance(backbone, Backbone | TimmBackbone)
    backbone.freeze_until(config.frozen_until)  # assigned parameters are new
    return model.to(device).eval()


def read_notes(path: str | Path) -> dict[str, Any]:
    """What was saved with a network besides it."""
    _, about = _read(Path(path), tensors=False)
    notes: dict[str, Any] = json.loads(about["notes"])
    return notes


def config_from(content: dict[str, Any]) -> ModelConfig:
    """A configuration from its JSON; an unknown field is an error, so that nothing is dropped in silence."""
    parts = dict(content)
    parts["head"] = from_json(HeadConfig, parts["head"])
    parts["preprocessing"] = from_json(Preprocessing, parts["preprocessing"])
    return from_json(ModelConfig, parts)


def _live_config(model: BCNN) -> ModelConfig:
    """The configuration as the parts are now: a classifier or head may have been replaced, layers frozen."""
    if not isinstance(model.head, Head) or not isinstance(model.classifier, nn.Linear | nn.Identity):
        raise TypeError(
            f"save: expected a bcnn.Head and an nn.Linear classifier, got {type(model.head).__name__} and "
            f"{type(model.classifier).__name__}; save the state_dict of parts of your own beside it."
        )
    classifier = model.classifier
    return replace(
        model.config,
        head=model.head.config,
        num_classes=classifier.out_features if isinstance(classifier, nn.Linear) else None,
        frozen_until=getattr(model.backbone, "frozen_until", None),
    )


def _skeleton(config: ModelConfig) -> BCNN:
    """A network of that configuration, its values of no account; random numbers elsewhere are not disturbed."""
    with torch.random.fork_rng(devices=[]):
        backbone = make_backbone(config.backbone, cut=config.cut, image_size=config.preprocessing.size)
        return BCNN(config, backbone.freeze_until(config.frozen_until))


def _differences(tensors: dict[str, torch.Tensor], own: dict[str, torch.Tensor]) -> str:
    """The first difference in names and shapes, and how many there are; empty if there is none."""
    problems = [f"{name} missing" for name in own if name not in tensors]
    problems += [f"{name} unknown" for name in tensors if name not in own]
    problems += [
        f"{name} of shape {tuple(tensors[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    return f"{problems[0]} ({len(problems)} in all)" if problems else ""


def _other_parts(model: nn.Module, skeleton: nn.Module) -> str:
    """The first part that is of another kind, or has no tensors and other settings; empty if there is none."""

    def parts(module: nn.Module) -> dict[str, str]:
        settled = {name for name, part in module.named_modules() if any(True for _ in part.parameters(recurse=False))}
        return {
            name: type(part).__name__ + ("" if name in settled else f"({part.extra_repr()})")
            for name, part in module.named_modules()
        }

    own, expected = parts(model), parts(skeleton)
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
            return {key: file.get_tensor(key) for key in file.keys()} if tensors else {}, about  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path}: expected a safetensors file written by bcnn.save, got: {error}.") from None
