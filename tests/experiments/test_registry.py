"""Every artifact: one file with what, command, cost and expected result; one test file; tables from real results."""

import importlib
from pathlib import Path

import pytest

from bcnn.experiments import EXPERIMENTS
from bcnn.report.document import Table


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_docstring_says_what_how_and_what_to_expect(name):
    module = importlib.import_module(f"bcnn.experiments.{name}")
    assert EXPERIMENTS[name].about is module.__doc__
    for word in (f"Run:      bcnn reproduce {name}", "Cost:", "Expected: experiments/paper/"):
        assert word in module.__doc__
    assert EXPERIMENTS[name].summary.startswith(EXPERIMENTS[name].title)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_it_has_a_test_of_its_own(name):
    assert (Path(__file__).parent / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_all_of_it_has_been_measured(lab, name):
    _, subject, results = lab
    jobs = EXPERIMENTS[name].jobs(subject)
    assert jobs
    assert all(results.get(job) is not None for job in jobs)
    details = [block for block in EXPERIMENTS[name].blocks(results, [subject]) if isinstance(block, Table)]
    ours = [t for t in details if t.title not in ("The paper and ours", "The paper's", "What the authors say")]
    assert ours
    assert "not run" not in str(ours)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_nothing_measured_gives_no_table(lab, name):
    _, subject, results = lab
    empty = type(results)()
    assert EXPERIMENTS[name].blocks(empty, [subject]) == []
