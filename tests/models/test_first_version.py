"""What version 1 wrote, before networks had several branches: models, descriptors, checkpoints."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import bcnn
from bcnn.descriptors.folder import Descriptors
from bcnn.finetune import checkpoint
from bcnn.pooling.head import PAPERS, PRESETS, ridge_in
from tests.descriptors.images import network

IMAGES = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
NAMES = {"branches.0.backbone.": "backbone.", "branches.0.projection.": "projection.", "scorer.": "classifier."}


def first_config(model, **head):
    """As version 1 wrote it."""
    branch, config = model.config.branches[0], model.config
    old = {"pooling": "bilinear", "eps": 0.001, "eps_scale": "trace", "layout": "maps", "triangle": True, "thin": None}
    return {
        "backbone": branch.backbone, "cut": branch.cut, "num_classes": config.num_classes, "proj_dim": branch.proj_dim,
        "frozen_until": branch.freeze_until, "weights": branch.weights,
        "preprocessing": {**vars(branch.preprocessing)}, "head": {**old, "normalize": config.head.normalize, **head},
    }  # fmt: skip


def first_names(tensors):
    found = {}
    for name, value in tensors.items():
        start = next((start for start in NAMES if name.startswith(start)), "")
        found[NAMES.get(start, "") + name.removeprefix(start)] = value.contiguous()
    return found


@pytest.mark.parametrize("thin", [None, False])
@pytest.mark.parametrize("preset", PAPERS)
def test_models_are_read(tmp_path, preset, thin):
    model = network(preset, num_classes=4, proj_dim=6, freeze_until="conv1")
    eps = ridge_in(PRESETS[preset])
    head = {"pooling": "average"} if eps is None else {"eps": eps}
    about = {
        "format": "bcnn-model", "version": "1", "written_by": "bcnn 0.1.0",
        "notes": json.dumps({"classes": list("abcd")}),
        "config": json.dumps(first_config(model, thin=thin, **head)),
    }  # fmt: skip
    save_file(first_names(model.state_dict()), tmp_path / "m.safetensors", metadata=about)
    again = bcnn.load(tmp_path / "m.safetensors")
    torch.testing.assert_close(again(IMAGES), model(IMAGES), rtol=1e-4, atol=1e-5)
    if thin is None:
        assert again.config == model.config
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
    assert bcnn.read_notes(tmp_path / "m.safetensors") == {"classes": list("abcd")}


def test_descriptors_are_refused_in_words(tmp_path):
    (tmp_path / "features.json").write_text("{}")
    with pytest.raises(FileNotFoundError, match="early version: describe the images again into a new folder"):
        Descriptors(tmp_path)


def test_checkpoints_are_refused_in_words(tmp_path):
    model = network(num_classes=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    path = tmp_path / "c.safetensors"
    checkpoint.save(path, model, optimizer, checkpoint.State(), {})
    with safe_open(path, framework="pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "crc32"}
        own = {name.removeprefix("model."): file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file({f"model.{name}": value for name, value in first_names(own).items()}, path, metadata=about)
    with pytest.raises(ValueError, match="as earlier versions of bcnn called them; finish it with that version"):
        checkpoint.load(path, model, optimizer, {})
