"""`bcnn bench pooling`: the errors it reports, the files it writes, the table made from them."""

import pytest
import torch
from typer.testing import CliRunner

from bcnn.bench import pooling
from bcnn.bench.settings import Pooling, choose
from bcnn.cli import app
from bcnn.files import read_csv


def test_quick_run_writes_what_it_prints(tmp_path):
    result = CliRunner().invoke(app, ["bench", "pooling", "--quick", "--rounds", "1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    (path,) = tmp_path.glob("pooling_*.csv")
    records = read_csv(path)
    assert {p.suffix for p in tmp_path.iterdir()} == {".csv", ".md", ".png"}
    assert path.with_suffix(".md").read_text() == pooling.LAYOUT.markdown(records)
    by_case = {record["case"]: record for record in records}
    assert float(by_case["thick: eigh + autograd"]["ratio"]) == 1
    assert float(by_case["thin"]["root_error"]) < 1e-6
    assert float(by_case["thin"]["gradient_error"]) < 1e-5
    assert float(by_case["thin"]["gradient_error"]) < float(by_case["thick: bcnn.sqrtm"]["gradient_error"])
    assert float(by_case["bfloat16"]["cosine"]) == pytest.approx(1, abs=1e-3)
    assert all(float(record["time_ms"]) > 0 for record in records)
    assert "thin" in result.output


def test_photographs_are_real_and_prepared():
    model = pooling.build_model("bcnn", backbone="tiny", weights=None)
    images = pooling.photographs(model, choose(Pooling, quick=True))
    assert images.shape == (2, 3, 64, 64)
    assert not torch.equal(images[0], images[1])
    assert images.std() > 0.2
