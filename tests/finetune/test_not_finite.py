"""A loss or gradient that is not finite: the run stops, or the step is skipped, counted and named."""

import json
import math
from dataclasses import replace
from itertools import accumulate

import pytest
import torch
from safetensors import safe_open

from bcnn.errors import GradientExceptionWarning, NonFiniteTrainingError
from bcnn.files import read_csv
from bcnn.finetune.checkpoint import LAST
from bcnn.finetune.log import Log
from bcnn.finetune.plan import Plan
from bcnn.finetune.step import Images
from bcnn.metrics import NonFinite
from tests.finetune.tasks import CONFIG, assert_same, last_weights, pictures, run, small_network, task_on


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


class Marked:
    """A source that marks some images, by a pixel that no photograph has."""

    MARK = 77.0

    def __init__(self, source, numbers):
        self.source, self.numbers = source, set(numbers)

    def batches(self, items, sizes):
        for at, size, values in zip(accumulate([0, *sizes]), sizes, self.source.batches(items, sizes), strict=False):
            for row, (number, _) in enumerate(items[at : at + size]):
                if number in self.numbers:
                    values[row, 0, 0, 0] = self.MARK
            yield values


def spoilt(dataset, folder, policy, numbers):
    """Marked images make the gradient infinite on its way through the third convolution."""
    task = task_on(dataset, folder, config=replace(CONFIG, on_nonfinite=policy))
    marked = []

    def look(module, inputs):
        marked.append(bool((inputs[0][:, 0, 0, 0] == Marked.MARK).any()))

    def spoil(module, inputs, output):
        if marked[-1] and output.requires_grad:
            output.register_hook(lambda grad: grad * float("inf"))

    task.model.backbone.register_forward_pre_hook(look)
    task.model.backbone.layers.conv3.register_forward_hook(spoil)
    return replace(task, train=Images(task.train.samples, Marked(task.train.source, numbers)))


def places_of(task, number):
    """The batches of all epochs that hold an image."""
    plan = Plan(len(task.train.samples), CONFIG.batch_size, True, 0)
    return [
        (epoch, at)
        for epoch in range(1, CONFIG.epochs + 1)
        for at, batch in enumerate(plan.epoch(epoch))
        if number in {one for one, _ in batch}
    ]


def test_a_gradient_that_is_not_finite_stops_the_run_and_loses_nothing(dataset, tmp_path):
    task = spoilt(dataset, tmp_path, "stop", {5})
    epoch, batch = places_of(task, 5)[0]
    said = (
        rf"gradient not finite in epoch {epoch}, batch {batch}, first in branches.0.backbone.layers.relu3 .*images: .*"
    )
    with pytest.raises(NonFiniteTrainingError, match=said + "on_nonfinite 'skip'"):
        run(task)
    with safe_open(tmp_path / LAST, framework="pt") as file:
        progress = json.loads(file.metadata()["progress"])
    assert (progress["epoch"], progress["batch"], progress["nonfinite"]) == (epoch, batch, [])
    (row,) = read_csv(tmp_path / "nonfinite.csv")
    assert task.train.samples[5].name in row["images"].split("; ")


def test_skipped_steps_are_counted_named_and_reported(dataset, tmp_path):
    task = spoilt(dataset, tmp_path, "skip", {5})
    expected = places_of(task, 5)
    with pytest.warns(GradientExceptionWarning, match="skipped: gradient not finite in epoch 1"):
        progress = run(task)
    assert [(e.epoch, e.batch) for e in progress.nonfinite] == expected
    assert all(task.train.samples[5].name in e.images for e in progress.nonfinite)
    assert [r.num_skipped for r in progress.history] == [0, 1, 1, 1]
    assert [row["batch"] for row in read_csv(tmp_path / "nonfinite.csv")] == [str(batch) for _, batch in expected]
    steps = read_csv(tmp_path / "steps.csv")
    assert len(steps) == 9
    assert sum(not math.isfinite(float(row["gradient_norm"])) for row in steps) == 3
    assert all(value.isfinite().all() for value in last_weights(tmp_path).values())


def test_a_stopped_run_goes_on_with_another_policy(dataset, tmp_path):
    with pytest.raises(NonFiniteTrainingError):
        run(spoilt(dataset, tmp_path / "a", "stop", {5}))
    with pytest.warns(GradientExceptionWarning):
        run(spoilt(dataset, tmp_path / "a", "skip", {5}))
    with pytest.warns(GradientExceptionWarning):
        run(spoilt(dataset, tmp_path / "b", "skip", {5}))
    assert_same(last_weights(tmp_path / "a"), last_weights(tmp_path / "b"))


def test_an_image_that_is_not_finite(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(Marked, "MARK", float("nan"))
    task = spoilt(dataset, tmp_path, "skip", {5})
    with pytest.warns(GradientExceptionWarning, match=r"loss not finite in epoch 1, batch \d, first in the input"):
        progress = run(task)
    assert [(e.epoch, e.batch) for e in progress.nonfinite] == places_of(task, 5)


def test_weights_beyond_rescue_stop_the_run_even_if_told_to_skip(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, on_nonfinite="skip", epochs=9, val_share=0))
    with torch.no_grad():
        task.model.scorer.bias.fill_(float("nan"))
    with pytest.warns(GradientExceptionWarning), pytest.raises(NonFiniteTrainingError, match="in a row"):
        run(task)


def test_a_network_that_validation_finds_spoilt_stops_the_run(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, on_nonfinite="skip", lr=1e30, epochs=1, batch_size=18))
    with pytest.raises(
        NonFiniteTrainingError, match=r"after epoch 1.*first in branches.0.backbone.*train/class.*begin anew"
    ):
        run(task)


def test_exceptions_of_the_svd_gradient_are_counted(dataset, tmp_path):
    function = "matrix_sqrt(forward='svd', backward='svd_truncated', tau=0.0)"
    model = small_network(normalize=(function, "signed_sqrt", "l2"))
    task = task_on(dataset, tmp_path, model=model)
    with torch.no_grad():  # channels that are always zero make eigenvalues that coincide
        task.model.backbone.layers.conv3.weight[4:].zero_()
        task.model.backbone.layers.conv3.bias[4:].fill_(-1.0)
    progress = run(task)
    assert progress.num_exceptions > 0


def test_exceptions_of_a_skipped_step_are_counted_once(dataset, tmp_path):
    function = "matrix_sqrt(forward='svd', backward='svd')"
    config = replace(CONFIG, on_nonfinite="skip", epochs=1, val_share=0, batch_size=24)
    task = task_on(dataset, tmp_path, config=config, model=small_network(normalize=(function, "signed_sqrt", "l2")))
    with torch.no_grad():
        task.model.backbone.layers.conv3.weight[4:].zero_()
        task.model.backbone.layers.conv3.bias[4:].fill_(-1.0)
    with pytest.warns(GradientExceptionWarning, match="first in head.normalizations.0"):
        progress = run(task)
    assert progress.num_exceptions == 24
    assert len(progress.nonfinite) == 1


def test_names_of_images_are_no_formulas_and_stay_on_one_line(tmp_path):
    log = Log(tmp_path, 0, fresh=True)
    with log:
        log.nonfinite([NonFinite(1, 0, "loss", "the input", ("=cmd()/a\rb.png", "c.png"))])
    lines = (tmp_path / "nonfinite.csv").read_bytes().splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(b",'=cmd()/a\\rb.png; c.png")
