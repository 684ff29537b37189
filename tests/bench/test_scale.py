"""`bcnn bench scale`: one record per size, each number grows by itself, and what is refused says why."""

import pytest

from bcnn.bench import scale
from bcnn.bench.settings import Scale, choose


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(scale, "apart", lambda function, *arguments: function(*arguments))  # a start takes seconds


def test_one_number_grows_at_a_time():
    settings = choose(Scale, quick=True, images=(60, 120), classes=(3, 5), lengths=(8, 12))
    records = scale.run(settings)
    assert [(r["grows"], r["size"]) for r in records] == [
        ("images", 60), ("images", 120), ("classes", 3), ("classes", 5),
        ("numbers per descriptor", 8), ("numbers per descriptor", 12),
    ]  # fmt: skip
    assert all(r["train_s"] > 0 and r["predict_s"] > 0 and r["memory_mb"] > 50 for r in records)
    assert len(scale._plot(records).axes) == 3


def test_what_memory_does_not_allow_says_so(monkeypatch):
    monkeypatch.setattr("bcnn.classify.gram.available_memory", lambda: 1000)
    records = scale.run(choose(Scale, quick=True, images=(60,), classes=(3,), lengths=(200,)))
    assert all("expected" in r["refused"] for r in records)
