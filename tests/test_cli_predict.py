"""`bcnn predict` on many images: rows as they come, a file that is gone on with; and words that any command takes."""

import csv
import json

import pytest

from bcnn.runs import predict as work
from bcnn.runs.sheet import Sheet
from tests.command import run_command as run
from tests.descriptors.images import draw, picture_folder

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]
CLASSES = 7


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=CLASSES, train=2, test=1)


@pytest.fixture(scope="module")
def model(pictures, tmp_path_factory):
    out = tmp_path_factory.mktemp("r") / "run"
    assert run("train", pictures, *SMALL, "--out", out).returncode == 0
    return out


@pytest.fixture
def interrupted(monkeypatch):
    """Ctrl-C after so many images."""
    original = work._all_logits

    def after(count):
        def some(recognizer, samples, progress):
            done = 0
            for part in original(recognizer, samples, progress):
                if done >= count:
                    raise KeyboardInterrupt
                done += len(part[0])
                yield part

        monkeypatch.setattr(work, "_all_logits", some)
        return lambda: monkeypatch.setattr(work, "_all_logits", original)

    return after


@pytest.mark.parametrize(("top", "count"), [("1", 1), ("6", 6), ("100", CLASSES), ("all", CLASSES)])
def test_any_number_of_classes(model, pictures, top, count):
    (found,) = json.loads(
        run("predict", model, pictures / "test/class_0/0.png", "--format", "json", "--top", top).stdout
    )
    assert len(found["top"]) == count
    if count == CLASSES:
        assert sum(one["probability"] for one in found["top"]) == pytest.approx(1)


@pytest.mark.parametrize("top", ["0", "-1", "many"])
def test_other_numbers_are_refused(model, pictures, top):
    result = run("predict", model, pictures, f"--top={top}")
    assert result.returncode == 2
    assert "--top: expected a number from 1 on, or all" in result.stderr


@pytest.mark.parametrize("form", ["csv", "jsonl", "json", "table"])
def test_rows_come_while_others_are_worked_on(model, pictures, interrupted, form):
    interrupted(4)
    result = run("predict", model, pictures / "test", "--batch", 2, "--format", form)
    assert result.returncode == 130
    assert result.stdout.count(".png") == (0 if form == "table" else 4)  # a table is drawn for 20 images at a time


def test_a_long_table_comes_in_pieces(model, pictures, interrupted):
    interrupted(20)
    result = run("predict", model, ".", "--batch", 2, "--top", 1, cwd=pictures)  # a long path would be broken
    assert result.stdout.count(".png") == 20


@pytest.mark.parametrize("suffix", [".csv", ".json", ".jsonl"])
def test_a_file_is_gone_on_with(model, pictures, tmp_path, interrupted, monkeypatch, suffix):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no")
    command = ("predict", model, broken, pictures / "test", "--batch", 2, "--out")
    whole, out = tmp_path / f"whole{suffix}", tmp_path / f"p{suffix}"
    done = run(*command, whole)
    assert done.returncode == 1
    assert "1 of 8 images could not be read" in done.stderr
    again = interrupted(4)
    assert run(*command, out).returncode == 130
    again()
    assert not out.exists()
    with (tmp_path / f"p{suffix}.part").open("a") as file:
        file.write('{"image": "half')  # as if it had been killed
    seen = []
    original = work._all_logits
    monkeypatch.setattr(
        work, "_all_logits", lambda r, samples, p: (seen.extend(s.name for s in samples), original(r, samples, p))[1]
    )
    result = run(*command, out)
    assert result.returncode == 1
    assert "1 of 8 images could not be read" in result.stderr
    assert len(seen) == 4
    assert out.read_text() == whole.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([broken.name, whole.name, out.name])
    if suffix == ".csv":
        rows = list(csv.DictReader(out.open()))
        assert len(rows) == 7
        assert "probability5" in rows[0]
    elif suffix == ".jsonl":
        assert all(json.loads(line)["top"] for line in out.read_text().splitlines())
    else:
        assert len(json.loads(out.read_text())) == 7


def test_files_of_others_and_of_other_images_are_left_alone(model, pictures, tmp_path, interrupted):
    out = tmp_path / "p.csv"
    out.write_text("mine")
    result = run("predict", model, pictures / "test", "--out", out)
    assert (result.returncode, "expected a file that is new" in result.stderr) == (2, True)
    assert out.read_text() == "mine"
    out.unlink()
    assert "a name that ends with .csv" in run("predict", model, pictures, "--out", tmp_path / "p.txt").stderr
    again = interrupted(2)
    run("predict", model, pictures / "test", "--batch", 2, "--out", out)
    again()
    for other in (["--top", 2], [draw(tmp_path / "more.png", 3)]):
        result = run("predict", model, pictures / "test", *other, "--out", out)
        assert result.returncode == 2
        assert "p.csv.part to be of the same command" in result.stderr


def test_one_at_a_time_and_no_links(model, pictures, tmp_path):
    out, target = tmp_path / "p.csv", tmp_path / "precious"
    page = Sheet(out, "of another process")
    result = run("predict", model, pictures / "test", "--out", out)
    assert (result.returncode, "expected nobody else at work" in result.stderr) == (2, True)
    page._file.close()
    (tmp_path / "p.csv.part").unlink()
    target.write_text("precious")
    (tmp_path / "p.csv.part").symlink_to(target)
    result = run("predict", model, pictures / "test", "--out", out)
    assert (result.returncode, "got a link or the like; remove it" in result.stderr) == (2, True)
    assert target.read_text() == "precious"


def test_help_by_one_letter():
    for command in ([], ["predict"], ["bench", "matfun"]):
        assert run(*command, "-h").stdout == run(*command, "--help").stdout


def test_quiet_and_verbose(model, pictures):
    command = ("evaluate", model, pictures)
    for quiet in (run("--quiet", *command), run(*command, "--quiet")):
        assert quiet.returncode == 0
        assert quiet.stderr == ""
        assert "accuracy" in quiet.stdout
    assert "looking at images" in run(*command).stderr
    told = run(*command, "--verbose").stderr.splitlines()
    assert "bcnn: looking at images: 7 of 7" in told
    both = run(*command, "--quiet", "--verbose")
    assert (both.returncode, "--quiet or --verbose" in both.stderr) == (2, True)
