"""What lies beside results: evaluations, other people's files, the remains of killed commands."""

import json
import os
import subprocess
import sys
import time

import pytest

from bcnn.bench import extract as bench
from tests.command import run_command as run
from tests.descriptors.images import draw, picture_folder

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=2, train=3, test=2)


@pytest.fixture(scope="module")
def trained(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("r") / "run"
    assert run("train", pictures, *SMALL, "--out", out).returncode == 0
    assert run("evaluate", out, pictures, "--split", "train").returncode == 0
    assert list(out.glob("evaluate_*/metrics.json"))
    return out


def test_an_evaluation_in_a_run_folder_is_no_run(trained, pictures, tmp_path):
    result = run("report", trained, "--out", tmp_path / "r.html")
    assert result.returncode == 0, result.stderr
    (trained / "metrics.json").rename(tmp_path / "kept")  # as of a run that is not finished
    assert "expected finished run folders" in run("compare", trained).stderr
    assert run("evaluate", trained, pictures).returncode == 0
    other = picture_folder(tmp_path / "other", classes=2, train=2, test=2)
    assert run("evaluate", trained, other).returncode == 0
    result = run("train", pictures, *SMALL, "--out", trained)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("name", ["page.html", "page.md"])
def test_a_report_overwrites_reports_alone(trained, tmp_path, name):
    (tmp_path / name).write_text("<html><title>My diary</title></html>\n")
    result = run("report", trained, "--out", tmp_path / "page.html")
    assert result.returncode == 2
    assert f"{name} to be new or an earlier report, got another file" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == [name]
    (tmp_path / name).unlink()
    for _ in range(2):
        assert run("report", trained, "--out", tmp_path / "page.html").returncode == 0


def test_a_comparison_overwrites_comparisons_alone(pictures, tmp_path):
    tuned = tmp_path / "tuned"
    assert run("train", pictures, *SMALL, "--finetune", "--epochs", "1", "--out", tuned).returncode == 0
    for name in ("comparison.csv", "comparison.md", "comparison.png"):
        place = tmp_path / f"of {name}"
        place.mkdir()
        (place / name).write_text("name,wishes\nme,many\n")
        result = run("compare", tuned, "--out", place)
        assert result.returncode == 2
        assert f"{name} to be new or such a table, got another file" in result.stderr
        assert [path.name for path in place.iterdir()] == [name]
    for _ in range(2):
        assert run("compare", tuned, "--out", tmp_path / "new").returncode == 0


def test_descriptors_go_into_a_folder_of_their_own(pictures, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    result = run("extract", pictures, *SMALL, "--out", tmp_path)
    assert result.returncode == 2
    assert "or a folder of descriptors, got 'mine.txt' there" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_reproduce_leaves_folders_of_others_alone(pictures, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    options = ["--data", f"mine={pictures}", "--networks", "tiny", *SMALL[2:], "--no-finetune"]
    result = run("reproduce", "table1_normalization", *options, "--out", tmp_path)
    assert result.returncode == 2
    assert "got one with 'mine.txt', which would be at risk" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


COMMANDS = {
    "train": ["train", "{pictures}", *SMALL, "--out", "{out}"],
    "finetune": ["train", "{pictures}", *SMALL, "--finetune", "--epochs", "1", "--out", "{out}"],
    "extract": ["extract", "{pictures}", *SMALL, "--out", "{out}"],
    "evaluate": ["evaluate", "{trained}", "{pictures}", "--out", "{out}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_one_at_a_time(trained, pictures, tmp_path, command):
    """The lock is of another process that works there; when it ends, however it does, the folder is free."""
    out = tmp_path / "out"
    words = [word.format(pictures=pictures, trained=trained, out=out) for word in COMMANDS[command]]
    assert run(*words).returncode == 0
    before = {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
    code = "import sys, time\nfrom pathlib import Path\nfrom bcnn.runs.place import locked\n"
    code += "with locked(Path(sys.argv[1]), 'x'):\n    print('in', flush=True)\n    time.sleep(600)\n"
    other = subprocess.Popen([sys.executable, "-c", code, str(out)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "in\n"
        result = run(*words)
        assert result.returncode == 2
        assert "expected nobody else at work" in result.stderr
        assert {path: path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()} == before
    finally:
        other.kill()
        other.wait()
    assert run(*words).returncode == 0


def test_no_image_can_be_read_says_why(trained, tmp_path):
    for name in ("train/class_0/a.png", "train/class_1/b.png", "test/class_0/c.png"):
        (tmp_path / "p" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / name).write_bytes(b"GIF of nothing")
    for command in (
        ["evaluate", trained, tmp_path / "p", "--out", tmp_path / "e"],
        ["train", tmp_path / "p", *SMALL, "--out", tmp_path / "r"],
        ["train", tmp_path / "p", *SMALL, "--finetune", "--epochs", "1", "--out", tmp_path / "f"],
    ):
        result = run(*command)
        assert result.returncode == 2
        assert "images that can be read" in result.stderr
        assert "got none; the first: " in result.stderr
        assert ".png: expected an image that Pillow can read" in result.stderr


def test_the_next_run_removes_what_is_surely_dead(trained, pictures, tmp_path):
    page, place = tmp_path / "page.html", tmp_path / "e"
    assert run("evaluate", trained, pictures, "--out", place).returncode == 0
    old = [tmp_path / ".page-abcd_123.html", place / ".mistakes-abcd_123.png", place / ".metrics-abcd_123.json"]
    fresh = [tmp_path / ".bcnn-page-abcd_123.html", place / ".bcnn-mistakes-abcd_123.png"]
    kept = [tmp_path / ".page-abcd_124.html", tmp_path / ".page-mine.html", tmp_path / ".other-abcd_123.html"]
    for path in (*old, *fresh, *kept):
        path.write_text("half")
    for path in (*old, *kept[1:]):
        os.utime(path, (time.time() - 7200,) * 2)
    assert run("report", trained, "--out", page).returncode == 0
    assert run("evaluate", trained, pictures, "--out", place).returncode == 0
    assert not any(path.exists() for path in (*old, *fresh))
    assert all(path.exists() for path in kept)


def test_a_return_in_a_file_name(trained, tmp_path):
    root = picture_folder(tmp_path / "p", classes=2, train=1, test=1)
    draw(root / "test" / "class_0" / "two\rlines.png", 5)
    assert run("evaluate", trained, root, "--out", tmp_path / "e").returncode == 0
    lines = (tmp_path / "e" / "predictions.csv").read_bytes().decode().splitlines()
    assert len(lines) == 4
    assert json.loads((tmp_path / "e" / "metrics.json").read_text())["num_test"] == 3


def test_bench_extract_looks_at_its_dataset_before_it_fetches_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "build_model", lambda *arguments, **options: pytest.fail("too early"))
    result = run("bench", "extract", "folder:nowhere", "--out", tmp_path)
    assert result.returncode == 2
    assert "which is not there" in result.stderr
