"""Whatever happens, the user sees one line with a remedy; the traceback goes into a file, if it is asked for."""

import errno
import re
from pathlib import Path

import pytest
import torch

from bcnn.cli import train
from tests.command import run_command as run

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]


def one_line(result) -> str:
    assert result.returncode == 2
    (line,) = result.stderr.strip().splitlines()
    assert line.startswith("bcnn: ")
    return line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "~nouser", *SMALL], "'~nouser', which is not there"),
        (["train", "folder:~nouser/x", *SMALL], "'~nouser/x', which is not there"),
        (["train", "textures", *SMALL, "--proj-dim", "10000000000"], "expected --proj-dim >= 1 and <= 65536"),
        (["train", "textures", *SMALL, "--device", "meta"], "expected a device that is present, got 'meta'; use cpu"),
        (["train", "textures", *SMALL, "--normalize", "l2(length=1e308)"], "`length` to be a number > 0 and <= 1e+15"),
        (["train", "textures", "--weights", "none", "--backbone", "tiny(proj_dim=10000000000)"], "not enough memory"),
    ],
)
def test_what_used_to_be_a_traceback(arguments, message, tmp_path):
    assert message in one_line(run(*arguments, cwd=tmp_path))


@pytest.fixture
def broken(monkeypatch):
    """A command with a fault in it."""

    def fail(*arguments):
        raise KeyError("inner")

    monkeypatch.setattr(train, "_config", fail)
    return ["train", "textures"]


def test_a_fault_is_one_line_that_says_how_to_learn_more(broken):
    line = one_line(run(*broken))
    assert "KeyError: 'inner'" in line
    assert "--debug" in line


def test_debug_writes_the_traceback_to_a_file(broken, monkeypatch):
    places = [run("--debug", *broken), run(*broken, "--debug")]
    monkeypatch.setenv("BCNN_DEBUG", "1")
    places.append(run(*broken))
    for result in places:
        found = re.search(r"the traceback is in (\S+\.txt)\.", one_line(result))
        path = Path(found[1])
        assert 'raise KeyError("inner")' in path.read_text()
        path.unlink()


def test_errors_of_ours_can_be_traced_too():
    found = re.search(r"the traceback is in (\S+\.txt)\.", one_line(run("train", "nowhere", "--debug")))
    assert "FileNotFoundError" in Path(found[1]).read_text()
    Path(found[1]).unlink()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "not enough memory"),
        (MemoryError("Unable to allocate 9 TB"), "not enough memory"),
        (MemoryError("classifier: expected 9 GB; take fewer images."), "bcnn: classifier: expected 9 GB; take fewer"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to\nallocate"), "not enough memory"),
        (RuntimeError("first\nsecond"), "RuntimeError: first second"),
        (RecursionError("deep"), "RecursionError: deep"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_every_kind_of_error(monkeypatch, error, message):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(train, "_config", fail)
    assert message in one_line(run("train", "textures"))


def test_an_interruption_stays_one(monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_config", fail)
    assert run("train", "textures").returncode == 130


@pytest.mark.parametrize("name", [None, "/somewhere/x.csv"])
def test_a_full_disk(monkeypatch, name):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device", name)

    monkeypatch.setattr(train, "_config", fail)
    line = one_line(run("train", "textures"))
    assert "Errno" not in line
    assert f"expected room on the disk{f' for {name}' if name else ''}, got a full one; make room" in line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[" * 3000, "lists of thousands of levels"),
        ("a: &a [1, 1]\nsize: *a\n", "an alias (*name)"),
        ("size: 2020-99-99\n", "expected YAML, got"),
        ("size: !!timestamp x\n", "expected YAML, got"),
    ],
)
def test_yaml_that_is_no_list_of_options(content, message, tmp_path):
    (tmp_path / "o.yaml").write_text(content)
    assert message in one_line(run("train", "textures", "--config", tmp_path / "o.yaml"))


def test_files_of_thousands_of_levels_are_refused_in_words(tmp_path):
    (tmp_path / "metrics.json").write_text("[" * 100_000)
    assert "thousands of levels" in one_line(run("compare", tmp_path))
