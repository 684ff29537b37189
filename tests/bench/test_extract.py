"""The benchmark of extraction runs and tells speed and memory."""

from itertools import product

import pytest

from bcnn.bench import measure
from bcnn.bench.extract import LAYOUT
from bcnn.bench.settings import Extract, choose
from bcnn.models.engines import usable
from bcnn.report import figures


@pytest.mark.slow
def test_quick_run(tmp_path):
    heard = []
    settings = choose(Extract, quick=True, spec="textures,per_class=2")
    records = measure("extract", settings, lambda *event: heard.append(event))
    engines = sorted(usable(), key=lambda name: name != "torch")
    assert engines[:2] == ["torch", "winograd"]
    speed, memory = records[: 2 * len(engines)], records[2 * len(engines) :]
    assert [(r["engine"], r["case"]) for r in speed] == [*product(engines, ["bare network", "bcnn extract"])]
    assert sorted((r["engine"], r["case"]) for r in memory) == sorted(product(engines, ["128 images", "32 images"]))
    for bare, whole in zip(speed[::2], speed[1::2], strict=True):
        assert bare["share"] == 1
        assert whole["share"] > 0  # a busy machine may turn the order round
        assert whole["images_per_s"] > 0
        assert whole["cosine"] == pytest.approx(1, abs=1e-5)
    assert [r["time"] for r in speed[:2]] == [1, 1]
    few, many = (r["memory_mb"] for r in memory[:2])
    assert many < 1.2 * few  # four times the images
    rounds, runs = 6 * len(engines), 2 * len(engines)
    assert heard == [
        *(("speed", i, rounds) for i in range(1, rounds + 1)), *(("memory", i, runs) for i in range(1, runs + 1))
    ]  # fmt: skip
    assert "| 128 images | winograd |" in LAYOUT.markdown(records)
    figures.save(LAYOUT.figure(records), tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000
