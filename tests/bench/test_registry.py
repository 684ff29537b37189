"""Every benchmark: its declaration fits the files that are kept of it, and its command has the options it declares."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from bcnn import machine
from bcnn.bench import BENCHMARKS, load
from bcnn.bench.settings import choose
from bcnn.files import read_csv
from bcnn.options import declared_by

from ..command import run_command

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_columns_are_those_of_the_committed_file(name):
    (path,) = RESULTS.glob(f"{name}_*.csv")
    layout = load(name).LAYOUT
    assert sorted([*(column.key for column in layout.columns), *machine.facts()]) == sorted(read_csv(path)[0])
    assert layout.markdown(read_csv(path)) == path.with_suffix(".md").read_text()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_command_has_the_options_of_the_settings(name):
    said = run_command("bench", name, "--help").stdout
    assert "--out" in said
    for option in declared_by(BENCHMARKS[name]).values():
        assert (option.name.upper() if option.argument else f"{option.flag} ") in said


def test_the_help_of_all_commands_names_them():
    said = run_command("bench", "--help").stdout
    assert all(name in said for name in BENCHMARKS)


def test_the_help_does_not_wait_for_torch():
    code = "import sys; import bcnn.cli.bench; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("kind", BENCHMARKS.values())
def test_what_is_given_goes_before_what_is_quick(kind):
    full, quick = choose(kind), choose(kind, quick=True)
    names = [own.name for own in fields(kind) if getattr(full, own.name) != getattr(quick, own.name)]
    assert len(names) > 1
    assert getattr(choose(kind, quick=True, **{names[1]: getattr(full, names[1])}), names[1]) == getattr(full, names[1])
