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
    assert svm._apart(os.getpid) != os.getpid()


def test_quick_run_writes_what_it_prints(tmp_path, monkeypatch):
    monkeypatch.setattr(svm, "_apart", lambda function, *arguments: function(*arguments))  # a start takes seconds
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


@pytest.mark.parametrize("text", ["2000", "2000x528", "axbxc", "10x5x0", "10x5x2", "10x5x11", ""])
def test_shapes_that_are_none(text):
    with pytest.raises(ValueError, match="bench svm: expected"):
        svm.read_shapes(text)
