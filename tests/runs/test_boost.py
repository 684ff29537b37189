"""`bcnn train --boost`: at several sizes, fine-tuned, gone on with after an interruption, predicted with."""

import json
from itertools import pairwise

import pytest
import torch

import bcnn
from bcnn.files import read_csv
from tests.command import run_command
from tests.descriptors.images import draw, picture_folder
from tests.seams.walk import SHORT, SMALL, predict, train


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p"), classes=3, train=8, test=3)


def test_frozen_at_two_sizes(pictures, tmp_path):
    out = tmp_path / "run"
    options = ("--boost", "6", "--boost-size", "32", "--boost-size", "48", "--shrinkage", "0.5")
    metrics = train(pictures, out, *options)
    assert metrics["classifier"]["kind"] == "boost(rounds=6, shrinkage=0.5)"
    model = bcnn.load(out / "model.safetensors")
    assert isinstance(model, bcnn.Ensemble)
    assert [member.preprocessing.size for member in model.members] == [32, 48]
    rounds = read_csv(out / "boost.csv")
    assert [row["size"] for row in rounds] == ["32", "48"] * 3
    risks = [float(row["risk"]) for row in rounds]
    assert risks[0] < 2  # with nothing, two classes of risk 1 per row
    assert all(after < before for before, after in pairwise(risks))
    shares = [0.5 * sum(float(row["alpha"]) for row in rounds[i::2]) for i in (0, 1)]
    assert model.weights.tolist() == pytest.approx(shares, rel=1e-6)
    done = run_command("predict", out, pictures / "test", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 9


def test_one_size_is_one_linear_classifier(pictures, tmp_path):
    train(pictures, tmp_path / "run", "--boost", "5")
    model = bcnn.load(tmp_path / "run" / "model.safetensors")
    assert len(model.members) == 1
    predict(pictures, tmp_path / "run")


def test_it_goes_on_where_it_was(pictures, tmp_path):
    options = ("--boost", "4")
    train(pictures, tmp_path / "whole", *options)
    train(pictures, tmp_path / "run", *options)
    rounds = tmp_path / "run" / "rounds"
    kept = rounds / "002.safetensors"
    before = kept.stat().st_mtime_ns
    (rounds / "003.safetensors").write_bytes((rounds / "003.safetensors").read_bytes()[:100])  # half-written
    (rounds / "004.safetensors").unlink()
    train(pictures, tmp_path / "run", *options)
    assert kept.stat().st_mtime_ns == before
    images = torch.rand(2, 3, 32, 32)
    whole, again = (bcnn.load(tmp_path / name / "model.safetensors") for name in ("whole", "run"))
    torch.testing.assert_close(again(images), whole(images))
    (tmp_path / "run" / "metrics.json").unlink()  # rounds of another configuration are not taken for one's own
    command = ("train", pictures, *SMALL, "--backbone", "tiny", "--boost", "4", "--C", "2", "--out", tmp_path / "run")
    refused = run_command(*command)
    assert refused.returncode == 2
    assert "got one with C 1.0 instead of 2.0" in refused.stderr


def test_fine_tuned(pictures, tmp_path):
    out = tmp_path / "run"
    metrics = train(pictures, out, "--boost", "2", "--shrinkage", "1", *SHORT)
    assert metrics["classifier"]["kind"] == "boost(rounds=2, shrinkage=1)"
    model = bcnn.load(out / "model.safetensors")
    first, second = (member.backbone.layers.conv1.weight for member in model.members)
    assert not torch.equal(first, second)  # whole networks were trained
    risks = [float(row["risk"]) for row in read_csv(out / "boost.csv")]
    assert risks[1] < risks[0] < 2
    assert not list((out / "rounds").rglob("descriptors"))
    predict(pictures, out)


def test_refusals(pictures, tmp_path, monkeypatch):
    small = ("train", pictures, "--backbone", "tiny", "--weights", "none", "--size", "32", "--out", tmp_path / "r")
    for wrong, said in (
        (("--shrinkage", "0.5"), "--shrinkage needs --boost"),
        (("--boost", "2", "--scorer", "lrbp", "--normalize", "none"), "the linear scorer with boost"),
        (("--boost", "2", "--preset", "bcnn,average"), "expected one preset"),
        (("--boost", "0"), "boost"),
    ):
        refused = run_command(*small, *wrong)
        assert refused.returncode == 2
        assert said in refused.stderr.replace("\n", " "), refused.stderr
    monkeypatch.setenv("WORLD_SIZE", "2")
    refused = run_command(*small, "--boost", "2")
    assert "expected one process with boost" in refused.stderr


def test_rounds_on_images_that_have_changed_are_refused(tmp_path):
    root = picture_folder(tmp_path / "pictures", classes=3, train=4, test=3)
    train(root, tmp_path / "run", "--boost", "2")
    draw(sorted(root.rglob("*.png"))[0], seed=999, stripes=9)
    refused = run_command("train", root, *SMALL, "--backbone", "tiny", "--boost", "2", "--out", tmp_path / "run")
    assert refused.returncode == 2
    assert "which have changed since; choose another --out" in refused.stderr
