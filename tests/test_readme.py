"""The README's code runs, its tables are those of the results file, its links lead somewhere."""

import importlib
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from bcnn.finetune.config import FinetuneConfig, FinetuneSession
from bcnn.fronts import FRONTS
from bcnn.options import declared_by
from bcnn.runs.config import RunConfig
from bcnn.scorers import SCORERS

from .descriptors.images import picture_folder
from .test_layers import LEVEL

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]


BLOCKS = [block for page in PAGES for block in re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)]
SCRIPTS = [block for block in BLOCKS if "from bcnn.cli import main" in block]  # they take the place of `bcnn`


@pytest.mark.parametrize("block", [block for block in BLOCKS if block not in SCRIPTS])
def test_python_blocks_run(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    with mock.patch.dict(FRONTS), mock.patch.dict(SCORERS):  # without what a block registers, afterwards
        exec(compile(block, "block", "exec"), names)
    assert "bcnn" in names  # it ran to its end, and was about us


@pytest.mark.slow
def test_the_script_with_parts_of_its_own_does_what_the_page_says(tmp_path):
    """As a reader would try it: the script in a file, the commands below it, on small pictures."""
    (script,) = SCRIPTS
    (tmp_path / "mine.py").write_text(script)
    picture_folder(tmp_path / "photos")
    commands = re.findall(r"^python (mine\.py .*)$", (ROOT / "docs" / "pooling.md").read_text(), re.MULTILINE)
    assert {shlex.split(command)[1] for command in commands} == {"methods", "train", "predict"}
    for command in commands:
        small = ["--backbone", "tiny", "--weights", "none", "--size", "32"] if " train " in command else []
        done = subprocess.run(
            [sys.executable, *shlex.split(command), *small],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        wanted = {"methods": "standardized", "train": "accuracy", "predict": "class_2"}[shlex.split(command)[1]]
        assert wanted in done.stdout + done.stderr


@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(script, monkeypatch, capsys):
    offline = ["--random-weights"] if "--random-weights" in script.read_text() else []
    monkeypatch.setattr(sys, "argv", [str(script), *offline])
    runpy.run_path(str(script), run_name="__main__")
    assert "all finite: True" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_local_links_exist(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / page).read_text()):
        assert (ROOT / page).parent.joinpath(target).exists(), f"{page} links to {target}, which is not there"


@pytest.mark.parametrize("page", PAGES)
def test_tables_are_those_of_the_results_files(page):
    update = runpy.run_path(str(ROOT / "benchmarks" / "update_docs.py"))
    text = (ROOT / page).read_text()
    assert update["rendered"](text) == text, "run benchmarks/update_docs.py"
    opened = re.findall(r"<!-- ([a-z]+(?: \w+)?): .+? -->", text)
    assert set(opened) <= set(update["TABLES"])
    assert len(opened) == text.count("<!-- end -->")


def test_every_option_is_in_the_documentation():
    training, finetuning = ((ROOT / "docs" / name).read_text() for name in ("training.md", "finetuning.md"))
    assert "<!-- options: run -->" in training
    assert "<!-- options: finetune -->" in finetuning
    for kind, page in ((RunConfig, training), (FinetuneConfig, finetuning), (FinetuneSession, finetuning)):
        for option in declared_by(kind).values():
            assert option.help in page, "run benchmarks/update_docs.py"
            assert option.argument or f"`{option.flag}`" in page


def test_the_readme_is_one_screen_with_one_table_and_three_commands():
    assert len(README.splitlines()) <= 140
    assert re.findall(r"<!-- (train|bench \w+|finetune|reproduce): (.+?) -->", README) == [("train", "cub46_vgg16")]
    assert README.count("<!-- session: ") == 1
    assert len(re.findall(r"^\$ bcnn ", README, re.MULTILINE)) == 3
    assert len(re.findall(r"^!\[", README, re.MULTILINE)) == 1


@pytest.mark.slow
def test_recorded_commands_still_run(tmp_path):
    """What README and tutorial show, on the photographs of the tutorial, with a tiny network instead of AlexNet."""
    recorder = runpy.run_path(str(ROOT / "benchmarks" / "record_sessions.py"))
    recorded = json.loads((ROOT / "benchmarks" / "results" / "sessions.json").read_text())["sessions"]
    assert {name: kept["command"] for name, kept in recorded.items()} == recorder["SESSIONS"]
    recorder["photographs"](tmp_path, "per_class=20", "per_class=4")
    for name, command in recorder["SESSIONS"].items():
        small = command.replace("--backbone alexnet --size 128", "--backbone tiny --weights none --size 32")
        printed = recorder["run"](small, tmp_path)
        words = set(re.findall(r"[a-z]{4,}", recorded[name]["output"])) - {"left", "images"}  # of the progress
        assert len(words & set(re.findall(r"[a-z]{4,}", printed))) > len(words) / 2, printed


def test_measurements_are_shown():
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text()
    results = (ROOT / "docs" / "results.md").read_text()
    assert results.count("<!-- bench matfun") == 1
    assert benchmarks.count("<!-- bench matfun") >= 4
    assert benchmarks.count("<!-- bench pooling") >= 1


def test_the_walk_of_an_image_crosses_every_room_once():
    (picture,) = re.findall(r"```mermaid\n(.*?)```", CONTRIBUTING, re.DOTALL)
    rooms = {path.parent.name for path in (ROOT / "bcnn").glob("*/__init__.py")} | {"options"}
    assert sorted(re.findall(r"(\w+)\[\"", picture)) == sorted(rooms)
    assert sorted(re.findall(r"^\d+\. `(\w+)`", CONTRIBUTING, re.MULTILINE)) == sorted(rooms)


def test_the_layers_are_those_of_the_test():
    rows = re.findall(r"^\| (\d+) \| (`.*`) \|$", CONTRIBUTING, re.MULTILINE)
    assert {name: int(level) for level, names in rows for name in re.findall(r"`(\w+)`", names)} == LEVEL


def test_new_things_go_where_the_table_says():
    table = CONTRIBUTING.partition("| New |")[2].partition("\n\n")[0]
    for path in re.findall(r"`(bcnn/[\w/.]*)", table):
        assert (ROOT / path).exists(), path
    for row in table.splitlines()[2:]:
        (file, registration, *_) = row.split("|")[2:]
        for name in re.findall(r"`([A-Z]+)`", registration):
            folder = (re.findall(r"`(bcnn/[\w/.]+)", registration) + re.findall(r"`(bcnn/[\w/.]+)", file))[0]
            module = folder.removesuffix("/__init__.py").removesuffix(".py").rstrip("/").replace("/", ".")
            assert getattr(importlib.import_module(module), name) is not None
