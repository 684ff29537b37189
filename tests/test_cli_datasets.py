"""`bcnn datasets` through its entry point."""

import json
import os
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from bcnn.data import DATASETS

from .command import run_command
from .data.pictures import write


def run(*arguments: str) -> CompletedProcess[str]:
    return run_command("datasets", *arguments)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Two classes; one image is broken, one test image is a copy, one name is no text."""
    for seed, name in enumerate(["train/a/0.jpg", "train/[b]/0.jpg", "test/a/1.jpg", "test/[b]/1.jpg"]):
        write(tmp_path / "set" / name, seed)
    root = tmp_path / "set"
    shutil.copy(root / "train" / "a" / "0.jpg", root / "test" / "a" / "copy.jpg")
    (root / "train" / "[b]" / os.fsdecode(b"bro\xffken\n.jpg")).write_text("x")
    (root / "train" / "a" / "notes.txt").write_text("x")
    return root


def test_list_shows_every_kind_with_its_options():
    result = run("list")
    assert result.returncode == 0
    for name, kind in DATASETS.items():
        assert name in result.stdout
        assert all(option.name in result.stdout for option in kind.options)
    assert "level=variant" in result.stdout
    assert "bcnn[demo]" in result.stdout


def test_check_tells_all_and_does_not_fail(images):
    result = run("check", str(images))
    assert result.returncode == 0, result.stderr
    for expected in ("broken: 1", r"train/[b]/bro\udcffken\n.jpg", "training images: 1", "the same pixels", "48 x 36",
                     "test/a/copy.jpg", "train/a/notes.txt", "2 of 2", "1 broken, 1 in both splits"):  # fmt: skip
        assert expected in result.stdout
    assert result.stderr == ""


def test_check_as_json_and_strictly(images):
    result = run("check", f"folder:{images}", "--json", "--strict")
    assert result.returncode == 1
    report = json.loads(result.stdout)
    assert report["clean"] is False
    assert [broken["name"] for broken in report["broken"]] == ["train/[b]/" + os.fsdecode(b"bro\xffken\n.jpg")]
    assert [(copy["test"], copy["train"], copy["exact"]) for copy in report["copies"]] == [
        ("test/a/copy.jpg", "train/a/0.jpg", True)
    ]
    assert report["counts"]["test"]["images"] == 3
    assert report["largest_size"] == [48, 36]


def test_a_sound_dataset_passes_and_long_lists_are_cut(tmp_path):
    result = run("check", "textures,per_class=1", "--strict")
    assert result.returncode == 0
    assert "every image can be read, none is in both splits" in result.stdout
    for i in range(30):
        for kind in "ab":
            (tmp_path / "train" / kind).mkdir(parents=True, exist_ok=True)
            (tmp_path / "train" / kind / f"{i:02d}.jpg").touch()
    result = run("check", str(tmp_path))
    assert "broken: 60" in result.stdout
    assert "and 40 more" in result.stdout
    assert "a/19.jpg" in result.stdout
    assert "a/20.jpg" not in result.stdout


def test_mistakes_are_one_line_and_exit_2():
    result = run("check", "cup:x")
    assert result.returncode == 2
    assert "unknown kind 'cup'; did you mean 'cub'?" in result.stderr
    assert "Traceback" not in result.stderr
