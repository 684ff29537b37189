"""Committed measurements: their report is theirs, and they tell nothing of the machine's folders."""

import json
import re
from pathlib import Path

import pytest

from bcnn.experiments.jobs.frozen import FrozenResult
from bcnn.experiments.plain import to_plain
from bcnn.experiments.report import make_document
from bcnn.experiments.results import FILE, Results, job_to_plain
from bcnn.experiments.run_folder import TunedResult
from bcnn.report.latex import render_latex
from bcnn.report.markdown import render_markdown
from bcnn.report.page import render_html


def _without_pictures(html: str) -> str:
    """Other versions of Matplotlib draw other lines."""
    return re.sub(r"data:image[^\"']*", "", html)


ROOT = Path(__file__).parent.parent / "results"
FOLDERS = sorted(path.parent for path in ROOT.glob(f"*/{FILE}"))


def test_there_are_some():
    assert FOLDERS


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_report_is_that_of_the_measurements(folder):
    document = make_document([folder])
    assert (folder / "report.md").read_text() == render_markdown(document), f"run bcnn report {folder}"
    assert (folder / "report.tex").read_text() == render_latex(document)
    html = (folder / "report.html").read_text()
    assert _without_pictures(html) == _without_pictures(render_html(document))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_no_paths_of_a_machine(folder):
    for name in (FILE, "report.md", "report.html"):
        assert not re.search(r"/(work|home|root|tmp|Users)/", (folder / name).read_text())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_every_accuracy_is_that_of_its_predictions(folder):
    for measurement in Results(folder / FILE).measurements.values():
        own = measurement.result
        if isinstance(own, FrozenResult | TunedResult):
            right = sum(a == b for a, b in zip(own.predicted, own.truth, strict=True))
            assert own.accuracy == pytest.approx(right / own.num_test, abs=1e-12)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_records_are_written_as_they_were_read(folder):
    lines = [json.loads(line) for line in (folder / FILE).read_text().splitlines()]
    stored = [line for line in lines if line["what"] == "measurement"]
    found = list(Results(folder / FILE).measurements.values())
    assert len(found) == len(stored)
    for own, line in zip(found, stored, strict=True):
        assert json.dumps(job_to_plain(own.job)) == json.dumps(line["job"])
        assert json.dumps(to_plain(own.result)) == json.dumps(line["result"])
