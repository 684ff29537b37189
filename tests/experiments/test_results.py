"""One JSON line a measurement: whole, in order, never lost."""

import json
import math
from dataclasses import replace

import pytest

from bcnn.bench.precision import Precision
from bcnn.experiments.jobs.gradient_errors import GradientErrors, GradientErrorsResult
from bcnn.experiments.plain import to_plain
from bcnn.experiments.records import Failed, Outcome, Subject
from bcnn.experiments.results import FILE, Results, job_to_plain
from tests.experiments.lab import info

JOB = GradientErrors("flat", "float32", 2, dim=8)
OTHER = GradientErrors("flat", "float64", 2, dim=8)
SUBJECT = Subject("cub", "abc", "tiny", seeds=(0, 1))


def outcome(*errors: float) -> Outcome[GradientErrorsResult]:
    return Outcome(GradientErrorsResult(8, 1.0, tuple(Precision("svd", error, error, 0, 2) for error in errors)))


def test_what_is_added_is_read_again(tmp_path):
    results = Results(tmp_path / "deep" / "results.jsonl")
    results.add_subject(SUBJECT, info(SUBJECT))
    results.add_subject(SUBJECT, info(SUBJECT))
    results.add(JOB, outcome(1.5), 2.0)
    again = Results(results.path)
    assert again.get(JOB) == outcome(1.5).result
    assert again.get(OTHER) is None
    assert again.subjects == [SUBJECT]
    assert again.datasets["cub", "abc"] == info(SUBJECT)
    assert again.measurements == results.measurements
    assert again.measurements[JOB].versions["torch"]
    assert len(results.path.read_text().splitlines()) == 3


def test_a_line_cut_short_is_removed_and_the_rest_kept(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.add(JOB, outcome(), 1.0)
    whole = results.path.read_text()
    results.path.write_text(whole + '{"what": "measurement", "job": {"ki')
    again = Results(results.path)
    assert again.get(JOB) == outcome().result
    assert results.path.read_text() != whole  # a reader changes nothing: somebody may be writing
    again.add(OTHER, outcome(2.0), 1.0)
    assert Results(results.path).get(OTHER) == outcome(2.0).result
    assert results.path.read_text().startswith(whole)
    assert len(results.path.read_text().splitlines()) == 2


def test_a_full_disk_spoils_nothing(tmp_path, monkeypatch):
    results = Results(tmp_path / "results.jsonl")
    results.add(JOB, outcome(), 1.0)
    whole = results.path.read_text()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"expected to write to .*No space left on device; make room"):
            results.add(OTHER, outcome(2.0), 1.0)
    assert results.path.read_text() == whole
    assert results.get(OTHER) is None
    results.add(OTHER, outcome(2.0), 1.0)
    assert Results(results.path).get(OTHER) == outcome(2.0).result


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[1]", '{"job": 1}', '{"what": "dream"}', '{"what": "measurement"}', '{"what": "subject", "new": 1}'],
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, line):
    path = tmp_path / "results.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"results.jsonl: expected"):
        Results(path)
    assert path.read_text() == line + "\n"


def test_the_later_measurement_counts(tmp_path):
    one, two = Results(tmp_path / "1.jsonl"), Results(tmp_path / "2.jsonl")
    one.add(JOB, outcome(1.0), 1.0)
    two.add(JOB, outcome(2.0), 1.0)
    two.add_subject(SUBJECT, info(SUBJECT))
    one.measurements[JOB] = replace(one.measurements[JOB], date="2000-01-01T00:00:00+00:00")
    one.include(two)
    two.include(one)
    assert one.get(JOB) == two.get(JOB) == outcome(2.0).result
    assert one.subjects == [SUBJECT]
    assert json.loads((tmp_path / "1.jsonl").read_text())["result"] == to_plain(outcome(1.0).result)


def test_a_number_counts_before_a_failure(tmp_path):
    one, two = Results(), Results()
    one.add(JOB, outcome(1.0), 1.0)
    two.add(JOB, Outcome(Failed("diverged")), 1.0)
    one.include(two)
    two.include(one)
    assert one.get(JOB) == two.get(JOB) == outcome(1.0).result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mood": "good"}, "line 1: expected the fields of Measurement, got an unknown field 'mood'"),
        ({"job": {"kind": "dream"}}, "line 1: no measurement with a job, of a kind among frozen, tuned"),
        (
            {"job": {**job_to_plain(JOB), "mood": 1}},
            "fields of GradientErrors, got an unknown field 'mood'",
        ),
        ({"result": {"dim": 8, "condition": 1.0}}, "fields of GradientErrorsResult, got no field 'errors'"),
        ({"result": {"dim": 8, "condition": 1.0, "errors": "none"}}, "expected a list, got 'none'"),
        ({"result": {"failed": "so", "why": "so"}}, "expected the fields of Failed, got an unknown field 'why'"),
    ],
)
def test_fields_that_nobody_knows_are_told(tmp_path, change, message):
    results = Results(tmp_path / FILE)
    results.add(JOB, outcome(), 1.0)
    line = {**json.loads(results.path.read_text()), **change}
    results.path.write_text(json.dumps(line) + "\n")
    with pytest.raises(ValueError, match=message):
        Results(results.path)


def test_what_is_not_a_number_is_null(tmp_path):
    results = Results(tmp_path / FILE)
    results.add(JOB, outcome(math.nan), 1.0)
    assert json.loads(results.path.read_text())["result"]["errors"][0]["root_error"] is None
    (error,) = Results(results.path).get(JOB).errors
    assert math.isnan(error.root_error)
