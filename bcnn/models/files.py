"""A network in one file: tensors as safetensors, everything else as JSON in its header; nothing executable.

The header is readable in any text editor; years later the tensors and their meaning can be told without this package.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from .. import __version__
from ..data.preprocess import Preprocessing
from ..files import from_json, written_whole
from ..pooling.head import HeadConfig
from .backbones import make_backbone
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
        raise TypeError(f"save: expected a network made by bcnn.build_model, got {type(model).__name__}.")
    tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "written_by": f"bcnn {__version__}",
        "config": json.dumps(asdict(model.config)),
        "notes": json.dumps(notes or {}),
    }
    with written_whole(Path(path)) as temporary:
        save_file(tensors, temporary, metadata=metadata)
    return Path(path)


def load(path: str | Path, *, device: str | torch.device = "cpu") -> BCNN:
    """A network from a file of `save`, in evaluation mode; a wrong file is refused with the reason."""
    tensors, about = _read(Path(path))
    try:
        config = config_from(json.loads(about["config"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected a configuration that this version knows, got {error}.") from None
    backbone = make_backbone(config.backbone, cut=config.cut, image_size=config.preprocessing.size)
    backbone.freeze_until(config.frozen_until)
    model = BCNN(config, backbone)
    own = model.state_dict()
    problems = [f"{name} missing" for name in own if name not in tensors]
    problems += [f"{name} unknown" for name in tensors if name not in own]
    problems += [
        f"{name} of shape {tuple(tensors[name].shape)} instead of {tuple(own[name].shape)}"
        for name in own
        if name in tensors and tensors[name].shape != own[name].shape
    ]
    if problems:
        raise ValueError(
            f"{path}: expected the tensors of {config.backbone}, got {problems[0]} and {len(problems) - 1} more."
        )
    model.load_state_dict(tensors, assign=True)
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
