"""`bcnn datasets check SPEC --labels`: flipped labels on a page of photographs and in a table."""

import base64
import io
import re

import pytest
from PIL import Image

from bcnn.files import read_csv
from tests.command import run_command
from tests.descriptors.images import draw

SMALL = ("--backbone", "tiny", "--weights", "none", "--size", "32")


@pytest.fixture
def pictures(tmp_path):
    """Three classes of stripes; one image of the first lies in the folder of the third, one file is no image."""
    seed, root = 0, tmp_path / "pictures"
    for label in range(3):
        for i in range(10):
            draw(root / "train" / f"class <{label}>" / f"{i}.png", seed := seed + 1, stripes=2 + 6 * label)
        draw(root / "test" / f"class <{label}>" / "0.png", seed := seed + 1, stripes=2 + 6 * label)
    draw(root / "train" / "class <2>" / "wrong.png", 99, stripes=2)
    (root / "train" / "class <1>" / "broken.png").write_bytes(b"no image")
    return root


def test_the_wrong_one_comes_first(pictures, tmp_path):
    out = tmp_path / "out"
    for _ in range(2):  # the second time everything is described already
        done = run_command("datasets", "check", pictures, "--labels", *SMALL, "--out", out)
        assert done.returncode == 0, done.stderr
    assert "1 of 32 images could not be read" in done.stdout
    assert "of 31 training images look like another class" in done.stdout
    first = read_csv(out / "labels.csv")[0]
    assert (first["image"], first["label"], first["looks_like"]) == (
        "train/class <2>/wrong.png",
        "class <2>",
        "class <0>",
    )
    assert float(first["probability"]) > float(first["probability_of_label"])
    page = (out / "labels.html").read_text()
    assert "looks like class &lt;0&gt;" in page
    assert "; its label: " in page  # by which the list is in order
    assert "class <2>" not in page  # names are never read as HTML
    picture = re.search(r"data:image/jpeg;base64,([^\"]+)", page)[1]
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        assert max(image.size) <= 240


def test_nothing_to_say(tmp_path):
    for label in range(2):
        for i in range(8):
            draw(tmp_path / "p" / "train" / f"c{label}" / f"{i}.png", 20 * label + i, stripes=2 + 8 * label)
    done = run_command("datasets", "check", tmp_path / "p", "--labels", *SMALL, "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "0 of 16 training images look like another class; held-out accuracy 100.0 %" in done.stdout
    assert read_csv(tmp_path / "out" / "labels.csv") == []
    assert "0 of 16 training images" in (tmp_path / "out" / "labels.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--backbone", "tiny"), "--backbone: expected it together with --labels"),
     (("--out", "x"), "--out: expected it together with --labels"),
     (("--labels", "--preset", "bcnn,o2p"), "--preset: expected one with --labels, got 2"),
     (("--labels", "--backbone", "vgg61"), "vgg61")],
)  # fmt: skip
def test_bad_input(pictures, options, said, tmp_path):
    refused = run_command("datasets", "check", pictures, *options, cwd=tmp_path)
    assert refused.returncode == 2
    assert said in refused.stderr


def test_too_few_images(tmp_path):
    for label in range(2):
        for i in range(2):
            draw(tmp_path / "p" / "train" / f"c{label}" / f"{i}.png", i)
    refused = run_command("datasets", "check", tmp_path / "p", "--labels", *SMALL, "--out", tmp_path / "out")
    assert refused.returncode == 2
    assert "labels: expected at least 10 training images" in refused.stderr
