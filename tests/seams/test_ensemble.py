"""Several networks that predict, are saved and loaded as one."""

import json

import pytest
import torch

import bcnn
from tests.command import run_command

from .walk import train


@pytest.fixture(scope="module")
def runs(pictures, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    train(pictures, root / "small")
    train(pictures, root / "large", "--backbone", "tiny(cut=relu2)", "--size", "48")
    return [root / "small", root / "large"]


def test_scores_are_the_weighted_sum(runs):
    small, large = (bcnn.load(run / "model.safetensors") for run in runs)
    small.temperature = large.temperature = 1.0
    both = bcnn.Ensemble([small, large], weights=[0.25, 0.75])
    assert both.preprocessing.size == 48
    images = torch.rand(2, 3, 48, 48)
    resized = torch.nn.functional.interpolate(images, size=(32, 32), mode="bilinear", antialias=True)
    expected = 0.25 * small(resized) + 0.75 * large(images)
    torch.testing.assert_close(both(images), expected)
    torch.testing.assert_close(bcnn.Ensemble([large, large])(images), large(images))
    with pytest.raises(ValueError, match="expected a weight per network, got 1 for 2"):
        bcnn.Ensemble([small, large], weights=[1.0])
    with pytest.raises(ValueError, match="expected networks for the same number of classes, got 3, None"):
        bcnn.Ensemble([small, bcnn.build_model("bcnn", backbone="tiny", weights=None)])
    with pytest.raises(ValueError, match="expected at least one network"):
        bcnn.Ensemble([])


def test_probabilities_are_the_geometric_mean_of_the_members(runs, tmp_path):
    """A member whose scores, and temperature with them, are ten times as large has no more to say."""
    paths = [run / "model.safetensors" for run in runs]
    small, large = map(bcnn.load, paths)
    assert small.temperature == bcnn.read_notes(paths[0])["temperature"] != 1.0
    small.temperature, large.temperature = 0.2, 0.5
    images = torch.rand(2, 3, 48, 48)
    resized = torch.nn.functional.interpolate(images, size=(32, 32), mode="bilinear", antialias=True)
    each = torch.stack([(small(resized) / 0.2).softmax(1), (large(images) / 0.5).softmax(1)])
    mean = each.log().mean(0).exp()
    both = bcnn.Ensemble([small, large])
    torch.testing.assert_close(both(images).softmax(1), mean / mean.sum(1, keepdim=True))
    again = bcnn.load(bcnn.save(both, tmp_path / "both.safetensors"))
    assert torch.equal(again(images), both(images))
    with torch.no_grad():
        small.scorer.weight.mul_(10), small.scorer.bias.mul_(10)
    small.temperature = 2.0
    torch.testing.assert_close(bcnn.Ensemble([small, large])(images), again(images))
    assert small.reset_scorer(3).temperature == 1.0  # its scores are others


def test_saved_loaded_predicted(runs, pictures, tmp_path):
    members = [bcnn.load(run / "model.safetensors") for run in runs]
    notes = bcnn.read_notes(runs[0] / "model.safetensors")
    path = bcnn.save(bcnn.Ensemble(members), tmp_path / "both.safetensors", notes={"classes": notes["classes"]})
    again = bcnn.load(path)
    images = torch.rand(2, 3, 48, 48)
    assert torch.equal(again(images), bcnn.Ensemble(members)(images))
    done = run_command("predict", path, pictures / "test", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 9
    done = run_command("evaluate", path, pictures, "--out", tmp_path / "evaluated")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "evaluated" / "metrics.json").read_text())["num_test"] == 9


def test_networks_that_share_branches_are_saved(runs, tmp_path):
    from bcnn.models.bcnn import with_head, with_scorer
    from bcnn.pooling.head import make_config

    first = bcnn.load(runs[0] / "model.safetensors")
    second = with_scorer(with_head(first, make_config("average")), 3)
    both = bcnn.Ensemble([first, second])
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(bcnn.load(bcnn.save(both, tmp_path / "b.safetensors"))(images), both(images))


def test_other_squares_of_the_photograph_are_refused(runs):
    from dataclasses import replace

    first, second = (bcnn.load(runs[0] / "model.safetensors") for _ in range(2))
    second.set_geometry(replace(second.preprocessing, resize="shorter"))
    with pytest.raises(ValueError, match="expected networks that cut the same square out of a photograph"):
        bcnn.Ensemble([first, second])


def test_compiled_ones_are_told_what_to_do(runs, tmp_path):
    model = torch.compile(bcnn.load(runs[0] / "model.safetensors"))
    with pytest.raises(TypeError, match="of a compiled one its `_orig_mod`"):
        bcnn.save(model, tmp_path / "m.safetensors")
