"""`bcnn invert`: a class that the network then sees, a photograph, an ensemble, and what is refused."""

import numpy as np
import pytest
from PIL import Image

import bcnn
from tests.command import run_command
from tests.descriptors.images import picture_folder
from tests.seams.walk import train


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("p")
    pictures = picture_folder(root / "pictures", classes=3, train=8, test=3)
    train(pictures, root / "run")
    return root / "run"


def test_the_network_sees_the_class(run):
    classes = bcnn.read_notes(run / "model.safetensors")["classes"]
    for name in classes[:2]:
        done = run_command("invert", run, "--class", name, "--steps", "60", "--prior", "0.01", "--seed", "1")
        assert done.returncode == 0, done.stderr
        assert f"The network says {name}" in done.stdout
        first, last = (float(done.stdout.split(word)[1].split()[0].strip(",")) for word in ("loss ", "start, "))
        assert last < max(first / 10, 1e-3)
        with Image.open(run / f"invert_{name}.png") as picture:
            assert picture.size == (32, 32)
            assert np.asarray(picture).std() > 1  # something is on it


def test_a_photograph_and_an_ensemble(run, tmp_path):
    photograph = next((run.parent / "pictures").rglob("*.png"), None) or next((run.parent / "pictures").rglob("*.jpg"))
    out = tmp_path / "texture.png"
    options = ("--image", photograph, "--layers", "relu1,descriptor", "--size", "40", "--steps", "20", "--out", out)
    done = run_command("invert", run, *options)
    assert done.returncode == 0, done.stderr
    first, last = (float(done.stdout.split(word)[1].split()[0].strip(",")) for word in ("loss ", "start, "))
    assert last < first
    with Image.open(out) as picture:
        assert picture.size == (40, 40)
    member = bcnn.load(run / "model.safetensors")
    notes = bcnn.read_notes(run / "model.safetensors")
    both = bcnn.save(bcnn.Ensemble([member, member]), tmp_path / "both.safetensors", notes=notes)
    done = run_command("invert", both, "--class", notes["classes"][0], "--steps", "20", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / f"invert_{notes['classes'][0]}.png").exists()
    refused = run_command("invert", both, "--image", photograph)
    assert "expected one network for a photograph, got an ensemble" in refused.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "give --class or --image"), (("--class", "zebra"), "expected one of the 3 classes of the network, such as"),
     (("--class", ""), "expected the name of one class"),
     (("--class", "class", "--layers", "relu1"), "expected layers with a photograph alone"),
     (("--image", "missing.png"), "missing.png")],
)  # fmt: skip
def test_refusals(run, options, said):
    refused = run_command("invert", run, *options)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_the_file_has_to_be_a_picture(run, tmp_path):
    name = bcnn.read_notes(run / "model.safetensors")["classes"][0]
    refused = run_command("invert", run, "--class", name, "--steps", "1", "--out", tmp_path / "x.txt")
    assert "expected a file that ends in .png, or a folder" in refused.stderr
