"""What `export`, `explain` and `invert` write over, and what not; files that would hang whoever reads them."""

import os
import shutil
from pathlib import Path

import pytest
from PIL import Image

from bcnn.data.csv import csv
from bcnn.experiments.results import Results
from bcnn.files import read_tensors, read_text
from bcnn.metrics import find_runs, read
from bcnn.runs import config
from tests.command import run_command
from tests.descriptors.images import picture_folder

SMALL = ("--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("left") / "pictures", classes=2, train=2, test=1)


@pytest.fixture(scope="module")
def whole(pictures):
    run = pictures.parent / "run"
    assert run_command("train", pictures, *SMALL, "--out", run).returncode == 0
    return run


@pytest.fixture
def run(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def commands(run, photograph):
    """What each command needs, and the file that it writes in the run folder."""
    return {
        "export": (["export", run, "--to", "torch"], run / "model.pt2"),
        "explain": (["explain", run, photograph], run / "explanations" / "explain_0.png"),
        "invert": (["invert", run, "--class", "class_0", "--steps", "1"], run / "invert_class_0.png"),
    }


@pytest.mark.parametrize("name", ["export", "explain", "invert"])
def test_no_link_in_a_run_folder_is_followed_and_earlier_results_are_replaced(run, pictures, tmp_path, name):
    words, path = commands(run, pictures / "test" / "class_0" / "0.png")[name]
    for _ in range(2):
        done = run_command(*words)
        assert done.returncode == 0, done.stderr
    precious = tmp_path / "precious"
    precious.write_text("precious")
    path.unlink()
    path.symlink_to(precious)
    refused = run_command(*words)
    assert refused.returncode == 2
    assert f"{name}: expected" in refused.stderr
    assert "elsewhere" in refused.stderr
    assert precious.read_text() == "precious"


def test_a_folder_of_explanations_that_is_a_link(run, pictures, tmp_path):
    (tmp_path / "others").mkdir()
    (run / "explanations").symlink_to(tmp_path / "others")
    refused = run_command("explain", run, pictures / "test" / "class_0" / "0.png")
    assert refused.returncode == 2
    assert "expected no link" in refused.stderr
    assert not any((tmp_path / "others").iterdir())


@pytest.mark.parametrize(("name", "file"), [("export", "model.pt2"), ("invert", "mine.png"), ("explain", "mine.png")])
def test_files_of_others_are_left_alone(run, pictures, tmp_path, name, file):
    place = tmp_path / "mine"
    place.mkdir()
    photograph = pictures / "test" / "class_0" / "0.png"
    shutil.copy(photograph, place / file)
    before = (place / file).read_bytes()
    words, _ = commands(run, photograph)[name]
    refused = run_command(*words, "--out", place if name == "explain" else place / file)
    assert refused.returncode == 2
    assert "bcnn: " in refused.stderr
    assert [path.name for path in place.iterdir()] == [file]
    assert (place / file).read_bytes() == before


def test_the_photograph_whose_texture_is_made_is_not_overwritten(run, pictures, tmp_path):
    photograph = tmp_path / "photograph.png"
    shutil.copy(pictures / "test" / "class_0" / "0.png", photograph)
    assert run_command("invert", run, "--image", photograph, "--steps", "1", "--out", photograph).returncode == 2
    with Image.open(photograph) as own:
        assert own.size == (48, 48)


def test_pipes_and_endless_files_are_refused(tmp_path):
    pipe, sparse = tmp_path / "metrics.json", tmp_path / "sparse.csv"
    os.mkfifo(pipe)
    with sparse.open("wb") as file:
        file.truncate(40 * 10**9)
    for reader in (read, config.read, read_text, read_tensors):
        with pytest.raises(OSError, match="a pipe or a device"):
            reader(pipe)
    for reader in (read, config.read, read_text, csv):
        with pytest.raises(OSError, match=r"at most, got one of 40.0 GB"):
            reader(sparse)
    with pytest.raises(OSError, match="a pipe or a device"):
        config.read(Path("/dev/zero"))
    (tmp_path / "results.jsonl").symlink_to(pipe)
    with pytest.raises(OSError, match="a pipe or a device"):
        Results(tmp_path / "results.jsonl")
    assert find_runs(tmp_path, "metrics.json") == [pipe]
