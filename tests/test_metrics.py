"""What is known of a run goes to JSON and back, and files of other versions are read."""

import json

import pytest

from bcnn.metrics import NonFinite, RunMetrics, read
from tests.report.runs import CONTENT, FINETUNE, metrics_of

UNTESTED = {name: value for name, value in CONTENT.items() if name not in (
    "interval95", "top5_accuracy", "mean_class_accuracy", "negative_log_likelihood", "calibration_error", "per_class")
} | {"accuracy": None, "num_test": 0}  # fmt: skip


@pytest.mark.parametrize("content", [CONTENT, {**CONTENT, "finetune": FINETUNE}, UNTESTED])
def test_there_and_back(content):
    metrics = RunMetrics.from_json(content)
    again = json.loads(json.dumps(metrics.to_json()))
    assert again == content
    assert RunMetrics.from_json(again) == metrics


def test_what_is_inside_has_types():
    metrics = metrics_of(finetune=FINETUNE)
    assert metrics.finetune.nonfinite == (NonFinite(1, 2, "loss", "conv1", ("a.jpg",)),)
    assert metrics.finetune.history[0].val_accuracy == 0.4
    assert metrics.test.per_class["x"].num_test == 100
    assert metrics.test.interval95 == (0.5, 0.7)
    assert RunMetrics.from_json(UNTESTED).test is None


def test_files_of_other_versions():
    classifier = {name: value for name, value in CONTENT["classifier"].items() if name != "rescale"}
    older = {**CONTENT, "classifier": classifier, "finetune": {**FINETUNE, "before": {"accuracy": None}}}
    del older["images"]
    assert RunMetrics.from_json(older).classifier.rescale == "none"
    assert RunMetrics.from_json(older).finetune.before.accuracy is None
    assert RunMetrics.from_json({**CONTENT, "weather": "fine"}) == metrics_of()


@pytest.mark.parametrize("text", ["[]", "{", '{"accuracy": null}', "{}"])
def test_another_file_is_refused(text, tmp_path):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(ValueError, match=r"metrics.json: expected the metrics of a run of bcnn train, got: "):
        read(tmp_path / "metrics.json")
