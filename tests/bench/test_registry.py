"""Every benchmark: its declaration fits the files that are kept of it, and its command has the options it declares."""

from dataclasses import fields
from pathlib import Path

import pytest

from bcnn import machine
from bcnn.bench import BENCHMARKS, load
from bcnn.files import read_csv

from ..command import run_command

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("name", BENCHMARKS)
def test_columns_are_those_of_the_committed_file(name):
    (path,) = RESULTS.glob(f"{name}_*.csv")
    keys = [column.key for column in load(name).layout.columns]
    assert sorted([*keys, *machine.describe()]) == sorted(read_csv(path)[0])
    assert load(name).layout.markdown(read_csv(path)) == path.with_suffix(".md").read_text()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_command_has_the_options_of_the_settings(name):
    said = run_command("bench", name, "--help").stdout
    assert "--quick" in said
    assert "--out" in said
    for own in fields(load(name).settings):
        flag = own.name.upper() if own.metadata["is_argument"] else f"--{own.name.removeprefix('num_')} "
        assert (flag in said) == bool(own.metadata["about"]), own.name


def test_the_help_of_all_commands_names_them():
    said = run_command("bench", "--help").stdout
    assert all(name in said for name in BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_what_is_given_goes_before_what_is_quick(name):
    benchmark = load(name)
    full, quick = benchmark.choose(), benchmark.choose(quick=True)
    assert full != quick
    first = fields(benchmark.settings)[0].name
    assert getattr(benchmark.choose(quick=True, **{first: getattr(full, first)}), first) == getattr(full, first)
