"""The benchmark of extraction runs and tells speed and memory."""

import pytest

from bcnn.bench.extract import Settings, quick, run, to_records
from bcnn.report import extract as report
from bcnn.report import figures


@pytest.mark.slow
def test_quick_run(tmp_path):
    heard = []
    settings = quick(Settings(spec="textures,per_class=2"))
    records = to_records(run(settings, lambda label, total: heard.append(label)))
    assert [record["case"] for record in records] == ["bare network", "bcnn extract", "32 images", "128 images"]
    bare, whole, few, many = records
    assert bare["share"] == 1
    assert whole["share"] > 0  # a busy machine may turn the order round
    assert whole["images_per_s"] > 0
    assert many["memory_mb"] < 1.2 * few["memory_mb"]  # four times the images
    assert set(heard) == {"speed", "memory"}
    assert "| 128 images |" in report.LAYOUT.markdown(records)
    figures.save(report.LAYOUT.figure(records), tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
