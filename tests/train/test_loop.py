"""The loop against one written by hand; accumulation, resuming, choosing, and what happens at a NaN."""

import copy
import json
import math
import resource
import signal
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate

import numpy
import pytest
import torch
from safetensors import safe_open
from tensorboardX.proto.event_pb2 import Event
from torch import nn
from torch.nn import functional

from bcnn.errors import GradientExceptionWarning, NonFiniteTrainingError
from bcnn.features.extract import to_batch
from bcnn.files import read_csv
from bcnn.models.files import load, read_notes
from bcnn.train.checkpoint import BEST, LAST
from bcnn.train.plan import Plan, learning_rate
from bcnn.train.signals import Interrupted
from bcnn.train.step import Images
from bcnn.train.validate import validate
from tests.train.tasks import CONFIG, assert_same, pictures, run, small_network, task_on, weights_of


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


class EnoughError(Exception):
    pass


def stop_after(steps):
    def tick(stage, done, total, note=""):
        nonlocal steps
        steps -= 1
        if steps == 0:
            raise EnoughError

    return tick


def last_weights(folder):
    with safe_open(folder / LAST, framework="pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def by_hand(task):
    """The same training in plain PyTorch, a batch at once; the losses of its steps and the last weights."""
    model = copy.deepcopy(task.model).train()
    config, samples = task.config, task.train.samples
    preprocessing = model.config.preprocessing
    plan = Plan(len(samples), config.batch_size, task.flips, task.seed)
    optimizer = torch.optim.SGD(
        model.parameters(), config.lr, momentum=config.momentum, weight_decay=config.weight_decay
    )
    losses = []
    for epoch in range(1, config.epochs + 1):
        for number, batch in enumerate(plan.epoch(epoch)):
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(config, epoch - 1 + (number + 0.5) / plan.num_batches)
            images = torch.cat([preprocessing(samples[i].open())[None] for i, _ in batch])
            images = torch.stack([image.flip(-1) if m else image for image, (_, m) in zip(images, batch, strict=True)])
            loss = functional.cross_entropy(model(images), torch.tensor([samples[i].label for i, _ in batch]))
            optimizer.zero_grad()
            loss.backward()
            if config.clip:
                nn.utils.clip_grad_norm_(model.parameters(), config.clip)
            optimizer.step()
            losses.append(loss.item())
    return losses, model.state_dict()


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        replace(CONFIG, schedule="cosine", warmup_epochs=1.0),
        replace(CONFIG, clip=0.05),
        replace(CONFIG, momentum=0.0),
    ],
    ids=["plain", "cosine", "clip", "no momentum"],
)
@pytest.mark.parametrize("batch", [1, 4, 16])
def test_it_is_gradient_descent(dataset, tmp_path, config, batch):
    task = task_on(dataset, tmp_path, config=config, batch=batch, model=small_network("bcnn"))
    losses, weights = by_hand(task)
    run(task)
    found = [float(row["loss"]) for row in read_csv(tmp_path / "steps.csv")]
    assert found == pytest.approx(losses, rel=1e-4)
    assert len(found) == 9
    last = last_weights(tmp_path)
    for name, value in weights.items():
        torch.testing.assert_close(last[f"model.{name}"], value, rtol=1e-3, atol=1e-5)


def test_two_runs_are_the_same_to_the_last_bit(dataset, tmp_path):
    for name in ("a", "b"):
        run(task_on(dataset, tmp_path / name))
    assert_same(last_weights(tmp_path / "a"), last_weights(tmp_path / "b"))


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 9])
@pytest.mark.parametrize("minutes", [0.0, 10.0], ids=["saved every step", "saved every epoch"])
def test_interrupted_anywhere_it_ends_at_the_same_weights(dataset, tmp_path, steps, minutes):
    config = replace(CONFIG, checkpoint_minutes=minutes)
    whole = task_on(dataset, tmp_path / "whole", config=config)
    first = run(whole)
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path / "torn", config=config), tick=stop_after(steps))
    torn = task_on(dataset, tmp_path / "torn", config=config)
    second = run(torn)
    assert second.num_sessions == 2
    assert_same(last_weights(tmp_path / "whole"), last_weights(tmp_path / "torn"))
    assert_same(weights_of(whole.model), weights_of(torn.model))
    assert first.best_epoch == second.best_epoch
    timed = ("time_s", "wait_s")
    histories = [[{k: v for k, v in r.items() if k not in timed} for r in p.history] for p in (first, second)]
    assert histories[0] == histories[1]
    assert read_csv(tmp_path / "whole" / "steps.csv") == read_csv(tmp_path / "torn" / "steps.csv")


def test_a_torn_line_of_the_log_is_no_obstacle(dataset, tmp_path):
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path), tick=stop_after(5))
    with (tmp_path / "steps.csv").open("a") as file:
        file.write("6,2,")
    run(task_on(dataset, tmp_path))
    assert [int(row["step"]) for row in read_csv(tmp_path / "steps.csv")] == list(range(9))


def test_beginning_anew(dataset, tmp_path):
    run(task_on(dataset, tmp_path))
    progress = run(task_on(dataset, tmp_path), resume=False)
    assert progress.num_sessions == 1
    assert len(read_csv(tmp_path / "steps.csv")) == 9


def test_another_training_is_refused(dataset, tmp_path):
    run(task_on(dataset, tmp_path))
    other = replace(CONFIG, lr=0.01)
    with pytest.raises(ValueError, match=r"lr 0.05 instead of 0.01; choose another --out"):
        run(task_on(dataset, tmp_path, config=other))


def test_a_file_of_something_else_is_refused(dataset, tmp_path):
    (tmp_path / LAST).write_bytes(b"nothing")
    with pytest.raises(ValueError, match="expected a checkpoint of bcnn train"):
        run(task_on(dataset, tmp_path))


@pytest.mark.parametrize("by", ["loss", "accuracy"])
def test_the_best_epoch_is_kept(dataset, tmp_path, by):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, select_by=by, epochs=5, lr=0.2))
    progress = run(task)
    key = {"loss": lambda r: -r["val_loss"], "accuracy": lambda r: (r["val_accuracy"], -r["val_loss"])}[by]
    assert progress.best_epoch == max(progress.history, key=key)["epoch"]
    assert read_notes(tmp_path / BEST)["epoch"] == progress.best_epoch
    assert_same(weights_of(task.model), weights_of(load(tmp_path / BEST)))


def test_validation_is_the_mean_over_the_views(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, epochs=1))
    model, held_out = copy.deepcopy(task.model).eval(), task.held_out.samples
    progress = run(task)
    pixels = [numpy.asarray(model.config.preprocessing.fit(sample.open())) for sample in held_out]
    images = to_batch(pixels, model.config.preprocessing, flips=True)
    with torch.no_grad():
        scores = model(images).unflatten(0, (2, -1)).mean(0)
    labels = torch.tensor([s.label for s in held_out])
    before = progress.history[0]
    assert before["val_loss"] == pytest.approx(functional.cross_entropy(scores, labels).item(), rel=1e-5)
    assert before["val_accuracy"] == pytest.approx((scores.argmax(-1) == labels).float().mean().item())


def test_without_validation_the_last_epoch_counts(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, val_share=0))
    progress = run(task)
    assert progress.best_epoch == CONFIG.epochs
    assert progress.history[-1]["val_accuracy"] is None
    last = last_weights(tmp_path)
    own = {f"model.{name}": value for name, value in weights_of(task.model).items()}
    assert_same(own, {name: last[name] for name in own})


# --- not finite -------------------------------------------------------------------------------------------------------


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
    said = rf"gradient not finite in epoch {epoch}, batch {batch}, first in backbone.layers.relu3 \(ReLU\); images: .*"
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
    assert [(e["epoch"], e["batch"]) for e in progress.nonfinite] == expected
    assert all(task.train.samples[5].name in e["images"] for e in progress.nonfinite)
    assert [r["num_skipped"] for r in progress.history] == [0, 1, 1, 1]
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
    assert [(e["epoch"], e["batch"]) for e in progress.nonfinite] == places_of(task, 5)


def test_weights_beyond_rescue_stop_the_run_even_if_told_to_skip(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, on_nonfinite="skip", epochs=9, val_share=0))
    with torch.no_grad():
        task.model.classifier.bias.fill_(float("nan"))
    with pytest.warns(GradientExceptionWarning), pytest.raises(NonFiniteTrainingError, match="in a row"):
        run(task)


def test_a_network_that_validation_finds_spoilt_stops_the_run(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, on_nonfinite="skip", lr=1e30, epochs=1, batch_size=18))
    with pytest.raises(NonFiniteTrainingError, match=r"after epoch 1.*first in backbone.*train/class.*begin anew"):
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


def test_told_to_stop_in_the_last_validation(dataset, tmp_path, monkeypatch):
    task = task_on(dataset, tmp_path)
    calls = []

    def told(*arguments, **options):
        calls.append(1)
        if len(calls) == CONFIG.epochs + 1:
            signal.raise_signal(signal.SIGTERM)
        return validate(*arguments, **options)

    monkeypatch.setattr("bcnn.train.loop.validate", told)
    with pytest.raises(Interrupted) as left:
        run(task)
    assert left.value.code == 128 + signal.SIGTERM
    monkeypatch.undo()
    assert len(run(task_on(dataset, tmp_path)).history) == CONFIG.epochs + 1
    run(task_on(dataset, tmp_path / "whole"))
    assert_same(last_weights(tmp_path), last_weights(tmp_path / "whole"))


def points(folder, tag):
    """What TensorBoard shows: a session's first step purges what earlier ones said of it and later ones."""
    seen = {}
    for path in sorted((folder / "tensorboard").iterdir(), key=lambda path: path.stat().st_mtime_ns):
        with path.open("rb") as file:
            while head := file.read(12):
                event = Event.FromString(file.read(int.from_bytes(head[:8], "little")))
                file.read(4)
                if event.HasField("session_log"):
                    seen = {step: value for step, value in seen.items() if step < event.step}
                for value in event.summary.value:
                    if value.tag == tag:
                        assert event.step not in seen
                        seen[event.step] = value.simple_value
    return seen


@pytest.mark.parametrize("steps", [2, 4, 5, 8])
def test_tensorboard_shows_every_step_and_epoch_once(dataset, tmp_path, steps):
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path), tick=stop_after(steps))
    progress = run(task_on(dataset, tmp_path))
    assert list(points(tmp_path, "step/loss")) == list(range(9))
    found = points(tmp_path, "epoch/validation_loss")
    assert [found[step] for step in (2, 5, 8)] == pytest.approx([r["val_loss"] for r in progress.history[1:]])
    run(task_on(dataset, tmp_path), resume=False)
    assert list(points(tmp_path, "step/loss")) == list(range(9))


# --- other ways -------------------------------------------------------------------------------------------------------


@contextmanager
def little_room(num_bytes):
    """No file grows larger, as if the disk were full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_leaves_the_checkpoint_before_it(dataset, tmp_path):
    config = replace(CONFIG, val_share=0)  # no best one to write: the checkpoint is what does not fit
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path, config=config), tick=stop_after(5))
    before = (tmp_path / LAST).read_bytes()
    with little_room(len(before) // 2), pytest.raises(OSError, match=r"last.safetensors, got.*one before it is whole"):
        run(task_on(dataset, tmp_path, config=replace(config, checkpoint_minutes=0.0)))
    assert (tmp_path / LAST).read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".last")]
    run(task_on(dataset, tmp_path, config=config))
    run(task_on(dataset, tmp_path / "whole", config=config))
    assert_same(last_weights(tmp_path), last_weights(tmp_path / "whole"))


@pytest.mark.parametrize(
    "options", [{"checkpoint_activations": True}, {"memory_gb": 0.0}], ids=["activations again", "nothing in memory"]
)
def test_means_change_no_result(dataset, tmp_path, options):
    run(task_on(dataset, tmp_path / "a"))
    run(task_on(dataset, tmp_path / "b", config=replace(CONFIG, **options)))
    assert_same(last_weights(tmp_path / "a"), last_weights(tmp_path / "b"))


def test_frozen_layers_stay(dataset, tmp_path):
    model = small_network(frozen_until="conv2")
    run(task_on(dataset, tmp_path, model=model))
    last = last_weights(tmp_path)
    start = weights_of(model)
    assert torch.equal(last["model.backbone.layers.conv2.weight"], start["backbone.layers.conv2.weight"])
    assert not torch.equal(last["model.backbone.layers.conv3.weight"], start["backbone.layers.conv3.weight"])
    assert "momentum.backbone.layers.conv2.weight" not in last


def test_a_photograph_that_disappears_is_named(tmp_path):
    dataset = pictures(tmp_path / "pictures")
    task = task_on(dataset, tmp_path / "run", config=replace(CONFIG, memory_gb=0.0))
    gone = task.train.samples[3]
    gone.source.unlink()
    with pytest.raises(OSError, match=gone.source.name):
        run(task)
