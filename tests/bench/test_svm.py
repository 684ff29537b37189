"""`bcnn bench svm`: agreement with LinearSVC, the files it writes, the table made from them."""

import os

import numpy as np
import pytest
from typer.testing import CliRunner

from bcnn.bench import svm
from bcnn.bench.settings import Svm, choose
from bcnn.cli import app
from bcnn.files import read_csv

WIDE, SHORT = svm.read_shapes(choose(Svm, quick=True).shapes)


def test_a_contender_has_a_process_of_its_own():
    assert svm.apart(os.getpid) != os.getpid()


def test_a_contender_that_the_system_ends_is_told_and_the_others_go_on(monkeypatch):
    with pytest.raises(MemoryError, match="ended by the system"):
        svm.apart(os._exit, 9)

    def ended(function, *arguments):
        if function is svm.linear_svc:
            raise MemoryError("its process was ended by the system")
        return function(*arguments)

    monkeypatch.setattr(svm, "apart", ended)
    theirs, ours, _ = svm.run(Svm(quick=True, shapes="60x200x4"))
    assert "ended by the system" in theirs["refused"]
    assert ours["total_s"] > 0


def test_quick_run_writes_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.setattr(svm, "apart", lambda function, *arguments: function(*arguments))  # a start takes seconds
    result = CliRunner().invoke(app, ["bench", "svm", "--quick", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("svm_*.csv")
    records = read_csv(path)
    assert {p.suffix for p in tmp_path.iterdir()} == {".csv", ".md", ".png"}
    assert path.with_suffix(".md").read_text() == svm.LAYOUT.markdown(records)
    assert len(records) == 6
    for theirs, ours, calibrated in (records[:3], records[3:]):  # wide and short descriptors
        assert float(theirs["ratio"]) == float(theirs["memory_ratio"]) == 1
        assert float(ours["difference"]) < 1e-3  # LinearSVC's tolerance
        assert ours["difference"] == calibrated["difference"]
    assert all(
        float(record["slowest_s"]) >= float(record["total_s"]) > 0 and float(record["memory_mb"]) > 50
        for record in records
    )
    assert "LinearSVC" in result.output


def test_descriptors_have_length_one_and_classes(tmp_path):
    svm.write_descriptors(tmp_path / "x.npy", WIDE)
    X = np.load(tmp_path / "x.npy")
    assert X.shape == (200, 2000)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1, rtol=1e-5)
    K, labels = X @ X.T, svm.labels_of(WIDE)
    same = (labels[:, None] == labels) & ~np.eye(200, dtype=bool)
    assert K[same].mean() > K[labels[:, None] != labels].mean() + 0.001


def test_preparations_are_counted_once():
    assert svm.scaled(5.0, 7.0, 100) == 205
    assert svm.scaled(5.0, 4.9, 100) == 5  # quicker than the clock tells


@pytest.mark.parametrize(("value", "text"), [(0.02, "1/50.0"), (1.0, "1.0"), (3.0, "3.0")])
def test_ratios_as_text(value, text):
    assert svm._ratio("ratio")({"ratio": value}) == text


def test_what_memory_does_not_allow_is_refused_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(svm, "apart", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(svm, "available_memory", lambda: 1000)
    monkeypatch.setattr("bcnn.classify.gram.available_memory", lambda: 1000)
    theirs, *ours = svm.run(Svm(quick=True, shapes="60x200x4"))
    assert "three copies of the descriptors" in theirs["refused"]
    assert all("the 60 x 60 products" in record["refused"] for record in ours)
    monkeypatch.setattr(svm.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    (record,) = svm.run(Svm(quick=True, shapes="60x200x4"))
    assert "of free disk" in record["refused"]


def test_only_theirs_refused_leaves_ours_without_ratios():
    own = svm.Outcome(1.0, 2.0, 100.0, np.zeros((3, 2)), 0.0)
    record = svm._record(own, svm.Refused("no memory"), 10)
    assert record["total_s"] == 1
    assert "ratio" not in record


def test_the_goal_is_every_combination():
    shapes = svm.read_shapes("goal")
    assert len(shapes) == len(set(shapes)) == 27
    assert svm.Shape(100_000, 8192, 1000) in shapes


@pytest.mark.parametrize("text", ["2000", "2000x528", "axbxc", "10x5x0", "10x5x2", "10x5x11", ""])
def test_shapes_that_are_none(text):
    with pytest.raises(ValueError, match="bench svm: expected"):
        svm.read_shapes(text)
