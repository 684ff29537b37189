"""What version 1 wrote, before networks had several branches: models, descriptors, checkpoints."""

import json

import pytest
import torch
from safetensors.torch import save_file

import bcnn
from bcnn.features.extract import ExtractOptions, extract
from bcnn.features.folder import Features
from bcnn.pooling.head import PRESETS, ridge_in
from bcnn.train import checkpoint
from tests.features.images import dataset_of, network, picture_folder

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
@pytest.mark.parametrize("preset", PRESETS)
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


def test_descriptors_are_gone_on_with(tmp_path):
    dataset = dataset_of(picture_folder(tmp_path / "p", classes=2, train=3, test=2))
    model = network("improved_bcnn", proj_dim=6)
    extract(dataset, {tmp_path / "f": model}, ExtractOptions(chunk=4))
    path = tmp_path / "f" / "features.json"
    content = json.loads(path.read_text())
    content["config"]["model"] = first_config(model)
    path.write_text(json.dumps(content))
    assert extract(dataset, {tmp_path / "f": model}, ExtractOptions(chunk=4)).num_done == 0
    assert not Features(tmp_path / "f").missing


def test_checkpoints_call_the_scorer_classifier(tmp_path):
    model = network(num_classes=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(IMAGES).sum().backward()
    optimizer.step()
    identity = {"lr_scale": ["scorer=10"], "decay_scale": []}
    checkpoint.save(tmp_path / "c.safetensors", model, optimizer, checkpoint.State(), identity)
    from safetensors import safe_open

    with safe_open(tmp_path / "c.safetensors", framework="pt") as file:
        about = {**file.metadata(), "identity": json.dumps({"lr_scale": ["classifier=10"]})}
        tensors = {}
        for kind in ("model.", "momentum."):
            own = {n.removeprefix(kind): file.get_tensor(n) for n in file.keys() if n.startswith(kind)}  # noqa: SIM118
            tensors |= {kind + name: value for name, value in first_names(own).items()}
    save_file(tensors, tmp_path / "old.safetensors", metadata=about)
    other = network(num_classes=3)
    with torch.no_grad():
        other.scorer.weight.zero_()
    fresh = torch.optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    assert checkpoint.load(tmp_path / "old.safetensors", other, fresh, identity) is not None
    assert torch.equal(other.scorer.weight, model.scorer.weight)
    assert torch.equal(fresh.state[other.scorer.weight]["momentum_buffer"],
                       optimizer.state[model.scorer.weight]["momentum_buffer"])  # fmt: skip
