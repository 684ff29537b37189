"""The authors' checkpoints: a file in their structure gives the scores that their formulas give."""

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import bcnn
from bcnn.cli import app
from bcnn.models.authors import import_checkpoint, is_checkpoint

from .weights.files import random_tensors

NUM_CLASSES = 3
IMAGES = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def their_keys(tensors):
    """VGG-D without its last maximum in a Sequential: indices count convolutions, relus and maxima."""
    state, index, block = {}, 0, "1"
    for name, value in tensors.items():
        layer, kind = name.rsplit(".", 1)
        if kind == "weight":
            index += layer[4] != block  # a maximum lies between
            block = layer[4]
        state[f"module.feature_extractors.feature_extractors.0.model.{index}.{kind}"] = value
        index += 2 * (kind == "bias")
    return state


def write(path, *, root=True, extra=None):
    tensors = {
        name: value * (1.0 if name.endswith("weight") else 0.1) for name, value in random_tensors("vgg16").items()
    }
    generator = torch.Generator().manual_seed(1)
    state = their_keys(tensors)
    assert "module.feature_extractors.feature_extractors.0.model.28.bias" in state
    state["module.fc.weight"] = torch.randn(NUM_CLASSES, 512 * 512, generator=generator) * 0.1
    state["module.fc.bias"] = torch.randn(NUM_CLASSES, generator=generator)
    if root:
        state["module.m_sqrt.I"] = torch.eye(512)
    state.update(extra or {})
    torch.save({"itr": 7, "state_dict": state, "optimizer": {"state": {}, "param_groups": []}, "best_acc": 0.8}, path)
    return state


def their_scores(state, images, *, root):
    """Their network, written from its description: plain convolutions, five Newton-Schulz steps, shifted root, l2."""
    features = nn.Sequential(*(
        layer
        for block, count in enumerate((2, 2, 3, 3, 3))
        for layer in [*([nn.MaxPool2d(2)] if block else []), *([nn.Conv2d(1, 1, 3, padding=1), nn.ReLU()] * 1) * count]
    ))  # fmt: skip
    x = images
    for i, layer in enumerate(features):
        if isinstance(layer, nn.Conv2d):
            key = f"module.feature_extractors.feature_extractors.0.model.{i}"
            x = nn.functional.conv2d(x, state[f"{key}.weight"], state[f"{key}.bias"], padding=1)
        else:
            x = layer(x)
    X = x.double().flatten(2)
    z = X @ X.mT / X.shape[-1]
    if root:
        norm = z.flatten(1).norm(dim=1)[:, None, None]
        eye = torch.eye(512, dtype=torch.float64)
        Y, Z = z / norm, eye.expand_as(z)
        for _ in range(5):
            T = 0.5 * (3 * eye - Z @ Y)
            Y, Z = Y @ T, T @ Z
        z = Y * norm.sqrt()
    z = z.flatten(1)
    z = torch.sqrt(torch.relu(z) + 1e-5) - torch.sqrt(torch.relu(-z) + 1e-5)
    z = nn.functional.normalize(z)
    return z @ state["module.fc.weight"].double().mT + state["module.fc.bias"].double()


@pytest.mark.slow
@pytest.mark.parametrize("root", [True, False])
def test_scores_are_theirs(tmp_path, root):
    path = tmp_path / "model_best.pth.tar"
    state = write(path, root=root)
    model = import_checkpoint(path)
    with torch.no_grad():
        scores = model(IMAGES)
    torch.testing.assert_close(scores.double(), their_scores(state, IMAGES, root=root), rtol=1e-3, atol=1e-3)
    assert model.config.preprocessing.resize == "shorter"
    assert ("matrix_sqrt" in model.config.head.normalize[0]) == root
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    with torch.no_grad():
        assert torch.equal(again(IMAGES), scores)


def test_command_imports_a_whole_network(tmp_path):
    path = tmp_path / "impbcnn_cub.pth.tar"
    write(path)
    assert is_checkpoint(path)
    result = CliRunner().invoke(app, ["weights", "import", str(path)])
    assert result.exit_code == 0, result.output
    assert "a whole network of 3 classes" in result.output
    assert "assumed: plain bilinear pooling" in result.output
    assert "num_iters=5" in result.output
    target = tmp_path / "impbcnn_cub.safetensors"
    assert bcnn.load(target).config.num_classes == NUM_CLASSES
    again = CliRunner().invoke(app, ["weights", "import", str(path)])
    assert "name it with --out to replace it" in str(again.exception)
    named = CliRunner().invoke(app, ["weights", "import", str(path), "--out", str(target), "--sqrt-iters", "9"])
    assert named.exit_code == 0, named.output
    assert "num_iters=9" in bcnn.load(target).config.head.normalize[0]
    foreign = tmp_path / "photograph.jpg"
    foreign.write_text("mine")
    refused = CliRunner().invoke(app, ["weights", "import", str(path), "--out", str(foreign)])
    assert "to be new or of an earlier bcnn weights import, got another file" in str(refused.exception)
    assert foreign.read_text() == "mine"


def test_only_the_suffix_is_cut_off(tmp_path):
    from bcnn.cli.weights import _target

    names = ["lr0.1.pth", "lr0.01.pth", "a.pth.tar", "b.tar"]
    assert [_target(tmp_path / name).stem for name in names] == ["lr0.1", "lr0.01", "a", "b"]


def test_other_checkpoints_are_refused(tmp_path):
    torch.save({"state_dict": {"conv.weight": torch.zeros(2)}}, tmp_path / "x.pth.tar")
    assert not is_checkpoint(tmp_path / "x.pth.tar")
    with pytest.raises(ValueError, match=r"expected keys such as module\.feature_extractors"):
        import_checkpoint(tmp_path / "x.pth.tar")
    write(tmp_path / "b.pth.tar", extra={"module.fc.0.weight": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match="expected one linear classifier"):
        import_checkpoint(tmp_path / "b.pth.tar")
    projection = {"module.feature_extractors.feature_extractors.0.1.weight": torch.zeros(2, 2, 1, 1)}
    write(tmp_path / "p.pth.tar", extra=projection)
    with pytest.raises(ValueError, match="expected the 26 tensors of VGG-D, got 27"):
        import_checkpoint(tmp_path / "p.pth.tar")
    write(tmp_path / "f.pth.tar", extra={"module.fc.weight": torch.zeros(3, 100)})
    with pytest.raises(ValueError, match="expected a classifier of 512 x 512 features, got 100"):
        import_checkpoint(tmp_path / "f.pth.tar")
