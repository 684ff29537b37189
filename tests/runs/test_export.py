"""`bcnn export`: one file from pixels to probabilities that agrees with the run, and what is refused."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import bcnn
from bcnn.models.exports import EXPORTS, onnx
from bcnn.models.exports import torch as torch_file
from bcnn.runs import export as work
from bcnn.runs.predict import open_run
from tests.command import run_command
from tests.descriptors.images import draw, picture_folder
from tests.seams.walk import train

PRESETS = ("improved_bcnn", "o2p", "isqrt_cov")
READ = {"onnx": onnx.read_about, "torch": torch_file.read_about}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Two classes that look the same and one of its own, so that probabilities are neither 0 nor 1."""
    root, seed = tmp_path_factory.mktemp("p") / "pictures", 0
    for label, stripes in enumerate((3, 3, 5)):
        for split, count in (("train", 8), ("test", 3)):
            for i in range(count):
                draw(root / split / f"class_{label}" / f"{i}.png", seed := seed + 1, stripes=stripes)
    return root


@pytest.fixture(scope="module")
def runs(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("r") / "run"
    small = ("--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", ",".join(PRESETS))
    assert run_command("train", pictures, *small, "--out", out).returncode == 0
    return out


def probabilities(run, pictures):
    done = run_command("predict", run, pictures / "test", "--format", "json", "--top", "all")
    return [{one["class"]: one["probability"] for one in image["top"]} for image in json.loads(done.stdout)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("to", "preset"), [("onnx", "improved_bcnn"), ("onnx", "o2p"), ("onnx", "isqrt_cov"), ("torch", "improved_bcnn")]
)
def test_the_file_says_what_the_run_says(runs, pictures, tmp_path, to, preset):
    out = tmp_path / f"birds{EXPORTS[to].suffix}"
    done = run_command("export", runs / preset, "--to", to, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "On 9 images: the same best class on 9 (100.0 %)" in done.stdout
    about = {name: json.loads(text) for name, text in READ[to](out).items() if name in ("classes", "preparation")}
    assert about["classes"] == ["class_0", "class_1", "class_2"]
    side = about["preparation"]["size"]
    assert side == 32
    run = EXPORTS[to].open(out)
    wanted = probabilities(runs / preset, pictures)
    paths = sorted((pictures / "test").rglob("*.png"))
    for count in (1, len(paths)):  # any number of images at a time
        squares = [np.asarray(Image.open(path).resize((side, side), Image.Resampling.BILINEAR)) for path in paths]
        got = run(work.as_input(squares[:count]))
        assert got.shape == (count, 3)
        for row, own in zip(got, wanted, strict=False):
            assert max(abs(row[i] - own[name]) for i, name in enumerate(about["classes"])) < 1e-4
    other = run(np.random.default_rng(0).random((2, 3, 40, 48), np.float32))  # any size, as the network allows it
    assert np.allclose(other.sum(1), 1, atol=1e-5)
    assert about["preparation"]["any_size"]
    assert 0.05 < got.max(1).min() < 0.95  # else nothing was compared


def test_a_fixed_size_and_folders_of_loose_images(runs, pictures, tmp_path):
    out = tmp_path / "fixed.pt2"
    options = ("--to", "torch", "--fixed-size", "--images", pictures / "test" / "class_0", "--num-images", "2")
    done = run_command("export", runs / "o2p", *options, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "takes any number of 32 x 32 images." in done.stdout
    assert "On 2 images" in done.stdout
    with pytest.raises((RuntimeError, AssertionError)):
        torch_file.open_file(out)(np.zeros((1, 3, 40, 40), np.float32))


def test_without_images_it_is_said_that_nothing_was_measured(tmp_path):
    pictures = picture_folder(tmp_path / "pictures", classes=2, train=4, test=2)
    small = ("--backbone", "tiny", "--weights", "none", "--size", "32")
    assert run_command("train", pictures, *small, "--out", tmp_path / "run").returncode == 0
    pictures.rename(tmp_path / "elsewhere")
    done = run_command("export", tmp_path / "run", "--to", "torch")
    assert done.returncode == 0, done.stderr
    assert "Not measured: the dataset of the run cannot be read here" in done.stdout
    assert (tmp_path / "run" / "model.pt2").exists()


@pytest.mark.slow
def test_ensembles_and_several_networks(runs, pictures, tmp_path):
    member = bcnn.load(runs / "improved_bcnn" / "model.safetensors")
    notes = bcnn.read_notes(runs / "improved_bcnn" / "model.safetensors")
    both = bcnn.save(bcnn.Ensemble([member, member]), tmp_path / "both.safetensors", notes={**notes, "temperature": 1})
    done = run_command("export", both, "--out", tmp_path / "both.onnx", "--images", pictures / "test")
    assert done.returncode == 0, done.stderr
    assert "the same best class on 9" in done.stdout
    two = ("--backbone", "tiny,tiny(cut=relu2)", "--pooling", "asymmetric")
    train(pictures, tmp_path / "two", *two)
    done = run_command("export", tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert "the same best class on 9" in done.stdout


@pytest.mark.slow
def test_a_decomposition_without_a_product_form_is_refused_in_words(pictures, tmp_path):
    train(pictures, tmp_path / "run", "--normalize", "cholesky_log", "--normalize", "l2", "--pooling", "bilinear")
    refused = run_command("export", tmp_path / "run")
    assert refused.returncode == 2
    assert "expected parts that onnx can express by products and sums, got" in refused.stderr
    assert "CholeskyLog" in refused.stderr
    assert not (tmp_path / "run" / "model.onnx").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--to", "tflite"), "unknown format 'tflite'"), (("--out", "x.bin"), "whose name ends in .onnx"),
     (("--images", "missing"), "missing")],
)  # fmt: skip
def test_bad_input(runs, options, said):
    refused = run_command("export", runs / "o2p", *options)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_a_missing_package_is_named(runs, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    refused = run_command("export", runs / "o2p")
    assert refused.returncode == 2
    assert "pip install 'bcnn[onnx]'" in refused.stderr


def test_the_cheapest_form_that_is_exact_enough_is_taken(runs, pictures, monkeypatch):
    recognizer = open_run(runs / "improved_bcnn")
    samples = work._named(str(pictures / "test"))
    (function,) = work._deployed(recognizer, False, samples).functions
    assert function.dtype == torch.float32
    monkeypatch.setattr(work, "WANTED", 0.0)  # nothing is: then the best of all
    (function,) = work._deployed(recognizer, False, samples).functions
    assert function.can_be_refined
    assert work._deployed(recognizer, True, samples).functions == []
