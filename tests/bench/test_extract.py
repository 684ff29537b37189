"""The benchmark of extraction runs and tells speed and memory."""

import pytest

from bcnn.bench.extract import BENCHMARK
from bcnn.report import figures


@pytest.mark.slow
def test_quick_run(tmp_path):
    heard = []
    settings = BENCHMARK.choose(quick=True, spec="textures,per_class=2")
    records = BENCHMARK.measure(settings, lambda *event: heard.append(event))
    assert [record["case"] for record in records] == ["bare network", "bcnn extract", "32 images", "128 images"]
    bare, whole, few, many = records
    assert bare["share"] == 1
    assert whole["share"] > 0  # a busy machine may turn the order round
    assert whole["images_per_s"] > 0
    assert many["memory_mb"] < 1.2 * few["memory_mb"]  # four times the images
    assert heard == [*(("speed", i, 6) for i in range(1, 7)), ("memory", 1, 2), ("memory", 2, 2)]
    assert "| 128 images |" in BENCHMARK.layout.markdown(records)
    figures.save(BENCHMARK.layout.figure(records), tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
