"""The lower bounds of pyproject.toml are those that `make test-oldest` tries; licences are told."""

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests import audit

ROOT = Path(__file__).parents[1]


def test_the_oldest_versions_are_those_that_are_tested():
    section = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("\n]")[0]
    bounds = dict(re.findall(r'"([\w-]+)>=([\w.]+)', section))
    pinned = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "constraints-min.txt").read_text(), re.MULTILINE))
    assert len(bounds) > 10
    assert bounds.keys() == pinned.keys()
    for name, bound in bounds.items():
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pinned[name]), name


def test_every_package_has_a_licence(capsys):
    odd = audit.print_licences()
    said = capsys.readouterr().out
    assert all(name in said for name in ("torch", "numpy", "pillow", "safetensors"))
    assert "bcnn" not in said
    assert not odd, odd


@pytest.mark.parametrize(
    ("output", "said", "code"),
    [
        ("no service", "NOT ASKED FOR", 0),
        (json.dumps({"dependencies": [{"name": "pillow", "version": "1", "vulns": []}]}), "0 known", 0),
        (
            json.dumps({"dependencies": [
                {"name": "pillow", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]},
                {"name": "mine", "skip_reason": "not there"},
            ]}),
            "pillow 1: CVE-1, mended in 2\n\nNOT ASKED FOR: 1 packages, such as mine",
            1,
        ),
    ],
)  # fmt: skip
def test_vulnerabilities_are_told_and_silence_is_no_error(output, said, code, capsys, monkeypatch):
    monkeypatch.setattr(audit.subprocess, "run", lambda *arguments, **options: CompletedProcess([], code, output, ""))
    assert audit.main() == code
    assert said in capsys.readouterr().out
