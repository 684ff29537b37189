"""What programs read: `--json` of train, evaluate and compare under the names of metrics.json; completion in shells."""

import json

import pytest

from tests.command import run_command as run
from tests.descriptors.images import picture_folder

SMALL = ["--backbone", "tiny", "--weights", "none", "--size", "32"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    return picture_folder(tmp_path_factory.mktemp("p") / "pictures", classes=2, train=4, test=2)


def said(result) -> dict:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_same_names_everywhere(pictures, tmp_path):
    torn = pictures / "test" / "class_0" / "torn.png"
    torn.write_bytes(b"no")
    run_folder = tmp_path / "run"
    command = ("train", pictures, *SMALL, "--preset", "bcnn", "--finetune", "--epochs", "1", "--out", run_folder)
    trained = said(run(*command, "--json"))
    again = said(run(*command, "--json"))
    compared = said(run("compare", run_folder, "--json", "--out", tmp_path / "c"))
    place = tmp_path / "e"
    evaluated = said(run("evaluate", run_folder, pictures, "--out", place, "--json"))
    assert trained == again
    assert compared["runs"] == trained["runs"]
    assert [row["name"] for row in compared["rows"]] == ["bcnn"]
    for found, folder in ((trained, run_folder), (evaluated, place)):
        (own,) = found["runs"]
        assert own.pop("folder") == str(folder)
        assert own == json.loads((folder / "metrics.json").read_text())
        assert list(own["broken"]) == ["test/class_0/torn.png"]
    names = {"folder", "dataset", "accuracy", "interval95", "num_test", "per_class", "broken", "versions", "listing"}
    assert names <= {"folder", *own}
    torn.unlink()


def test_several_presets_and_numbers_that_json_does_not_have(pictures, tmp_path, monkeypatch):
    found = said(run("train", pictures, *SMALL, "--preset", "average,bcnn", "--out", tmp_path / "r", "--json"))
    assert [one["preset"] for one in found["runs"]] == ["average", "bcnn"]
    from bcnn.cli.common import _finite

    assert _finite({"a": [float("nan"), (1.5, float("-inf"))], "b": "x"}) == {"a": [None, [1.5, None]], "b": "x"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [("bcnn tr", "train"), ("bcnn train --classi", "--classifier"), ("bcnn bench mat", "matfun")],
)
def test_shells_complete_commands_and_options(words, expected, monkeypatch):
    monkeypatch.setenv("_BCNN_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    assert run().stdout.split() == [expected]


def test_the_script_for_the_shell_is_shown(monkeypatch):
    monkeypatch.setenv("_BCNN_COMPLETE", "source_bash")
    assert "_BCNN_COMPLETE=complete_bash" in run().stdout
