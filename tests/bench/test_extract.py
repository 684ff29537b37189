"""The benchmark of extraction runs and tells speed and memory."""

from itertools import product

import pytest

from bcnn.bench import measure
from bcnn.bench.extract import LAYOUT
from bcnn.bench.settings import Extract, choose
from bcnn.report import figures


@pytest.mark.slow
def test_quick_run(tmp_path):
    heard = []
    settings = choose(Extract, quick=True, spec="textures,per_class=2")
    records = measure("extract", settings, lambda *event: heard.append(event))
    engines = ["torch", "winograd"]
    speed, memory = records[:4], records[4:]
    assert [(r["engine"], r["case"]) for r in speed] == [*product(engines, ["bare network", "bcnn extract"])]
    assert sorted((r["engine"], r["case"]) for r in memory) == sorted(product(engines, ["128 images", "32 images"]))
    for bare, whole in (speed[:2], speed[2:]):
        assert bare["share"] == 1
        assert whole["share"] > 0  # a busy machine may turn the order round
        assert whole["images_per_s"] > 0
        assert whole["cosine"] == pytest.approx(1, abs=1e-5)
    assert [r["time"] for r in speed[:2]] == [1, 1]
    few, many = (r["memory_mb"] for r in memory[:2])
    assert many < 1.2 * few  # four times the images
    assert heard == [*(("speed", i, 12) for i in range(1, 13)), *(("memory", i, 4) for i in range(1, 5))]
    assert "| 128 images | winograd |" in LAYOUT.markdown(records)
    figures.save(LAYOUT.figure(records), tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
