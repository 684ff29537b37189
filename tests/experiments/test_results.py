"""One JSON line a measurement: whole, in order, never lost."""

import json

import pytest

from bcnn.experiments.contract import Subject, to_plain
from bcnn.experiments.jobs.gradient_errors import GradientErrors
from bcnn.experiments.jobs.tuned import tuned
from bcnn.experiments.results import FILE, Results

JOB = GradientErrors("flat", "float32", 2, dim=8)
OTHER = GradientErrors("flat", "float64", 2, dim=8)
SUBJECT = Subject("cub", "abc", "tiny", seeds=(0, 1))


def test_what_is_added_is_read_again(tmp_path):
    results = Results(tmp_path / "deep" / "results.jsonl")
    results.add_subject(SUBJECT, {"dataset": "cub", "num_classes": 3})
    results.add_subject(SUBJECT, {"dataset": "cub", "num_classes": 3})
    results.add(JOB, {"errors": [1.5]}, 2.0)
    again = Results(results.path)
    assert again.get(JOB) == {"errors": [1.5]}
    assert again.get(OTHER) is None
    assert again.subjects == [SUBJECT]
    assert again.datasets["cub", "abc"]["num_classes"] == 3
    line = again.line(JOB)
    assert line["versions"]["torch"]
    assert "commit" in line
    assert len(results.path.read_text().splitlines()) == 3


def test_a_line_cut_short_is_removed_and_the_rest_kept(tmp_path):
    results = Results(tmp_path / "results.jsonl")
    results.add(JOB, {"errors": []}, 1.0)
    whole = results.path.read_text()
    results.path.write_text(whole + '{"what": "measurement", "job": {"ki')
    again = Results(results.path)
    assert again.get(JOB) == {"errors": []}
    assert results.path.read_text() != whole  # a reader changes nothing: somebody may be writing
    again.add(OTHER, {"errors": [2]}, 1.0)
    assert Results(results.path).get(OTHER) == {"errors": [2]}
    assert results.path.read_text().startswith(whole)
    assert len(results.path.read_text().splitlines()) == 2


def test_a_full_disk_spoils_nothing(tmp_path, monkeypatch):
    results = Results(tmp_path / "results.jsonl")
    results.add(JOB, {"errors": []}, 1.0)
    whole = results.path.read_text()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"expected to write to .*No space left on device; make room"):
            results.add(OTHER, {"errors": [2]}, 1.0)
    assert results.path.read_text() == whole
    assert results.get(OTHER) is None
    results.add(OTHER, {"errors": [2]}, 1.0)
    assert Results(results.path).get(OTHER) == {"errors": [2]}


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
    one.add(JOB, {"errors": [1]}, 1.0)
    two.add(JOB, {"errors": [2]}, 1.0)
    two.add_subject(SUBJECT, {})
    one.line(JOB)["date"] = "2000-01-01T00:00:00+00:00"
    one.include(two)
    two.include(one)
    assert one.get(JOB) == two.get(JOB) == {"errors": [2]}
    assert one.subjects == [SUBJECT]
    assert json.loads((tmp_path / "1.jsonl").read_text())["result"] == {"errors": [1]}


def test_a_number_counts_before_a_failure(tmp_path):
    one, two = Results(), Results()
    one.add(JOB, {"errors": [1]}, 1.0)
    two.add(JOB, {"failed": "diverged"}, 1.0)
    one.include(two)
    two.include(one)
    assert one.get(JOB) == two.get(JOB) == {"errors": [1]}


def test_lines_of_an_earlier_version_are_found(tmp_path):
    """They said of a fine-tuning only what its scheme changes."""
    subject = Subject("cub", "abc", "tiny")
    (job,) = tuned(subject, "unrolled")
    old = {**to_plain(job), "options": json.dumps({"backward": "unrolled", "forward": "newton_schulz", "num_iters": 5})}
    line = {"what": "measurement", "job": old, "result": {"accuracy": 0.5}, "time_s": 1.0, "versions": {}, "date": "x"}
    after = {"kind": "frozen", "source": {"tuned": old}}
    (tmp_path / FILE).write_text(json.dumps(line) + "\n" + json.dumps({**line, "job": after}) + "\n")
    results = Results(tmp_path / FILE)
    assert results.get(job) == {"accuracy": 0.5}
    assert [own["job"]["source"]["tuned"] for own in results.lines.values() if own["job"]["kind"] == "frozen"] == [
        to_plain(job)
    ]
