"""The loop against one written by hand; accumulation, resuming, choosing, what it says and where it is written."""

import copy
import resource
import signal
from contextlib import contextmanager
from dataclasses import replace

import numpy
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event
from torch import nn
from torch.nn import functional

from bcnn.files import read_csv
from bcnn.finetune.checkpoint import BEST, LAST
from bcnn.finetune.plan import Plan, learning_rate
from bcnn.finetune.signals import Interrupted
from bcnn.finetune.validate import validate
from bcnn.models.files import load, read_notes
from bcnn.models.views import to_batch
from tests.finetune.tasks import (
    CONFIG,
    EnoughError,
    assert_same,
    last_weights,
    pictures,
    run,
    small_network,
    stop_after,
    task_on,
    weights_of,
)  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures"))


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


@pytest.fixture(scope="module", params=[0.0, 10.0], ids=["saved every step", "saved every epoch"])
def uninterrupted(request, dataset, tmp_path_factory):
    """A training that came to its end: its configuration, task and result."""
    config = replace(CONFIG, checkpoint_minutes=request.param)
    whole = task_on(dataset, tmp_path_factory.mktemp("whole"), config=config)
    return config, whole, run(whole)


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 7, 9])
def test_interrupted_anywhere_it_ends_at_the_same_weights(uninterrupted, dataset, tmp_path, steps):
    config, whole, first = uninterrupted
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path / "torn", config=config), progress=stop_after(steps))
    torn = task_on(dataset, tmp_path / "torn", config=config)
    second = run(torn)
    assert second.num_sessions == 2
    assert_same(last_weights(whole.folder), last_weights(tmp_path / "torn"))
    assert_same(weights_of(whole.model), weights_of(torn.model))
    assert first.best_epoch == second.best_epoch
    histories = [[replace(record, time_s=0, wait_s=0) for record in p.history] for p in (first, second)]
    assert histories[0] == histories[1]
    assert read_csv(whole.folder / "steps.csv") == read_csv(tmp_path / "torn" / "steps.csv")


def test_a_torn_line_of_the_log_is_no_obstacle(dataset, tmp_path):
    with pytest.raises(EnoughError):
        run(task_on(dataset, tmp_path), progress=stop_after(5))
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
    key = {"loss": lambda r: -r.val_loss, "accuracy": lambda r: (r.val_accuracy, -r.val_loss)}[by]
    assert progress.best_epoch == max(progress.history, key=key).epoch
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
    assert before.val_loss == pytest.approx(functional.cross_entropy(scores, labels).item(), rel=1e-5)
    assert before.val_accuracy == pytest.approx((scores.argmax(-1) == labels).float().mean().item())


def test_without_validation_the_last_epoch_counts(dataset, tmp_path):
    task = task_on(dataset, tmp_path, config=replace(CONFIG, val_share=0))
    progress = run(task)
    assert progress.best_epoch == CONFIG.epochs
    assert progress.history[-1].val_accuracy is None
    last = last_weights(tmp_path)
    own = {f"model.{name}": value for name, value in weights_of(task.model).items()}
    assert_same(own, {name: last[name] for name in own})


def test_told_to_stop_in_the_last_validation(dataset, tmp_path, monkeypatch):
    task = task_on(dataset, tmp_path)
    calls = []

    def told(*arguments, **options):
        calls.append(1)
        if len(calls) == CONFIG.epochs + 1:
            signal.raise_signal(signal.SIGTERM)
        return validate(*arguments, **options)

    monkeypatch.setattr("bcnn.finetune.loop.validate", told)
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
        run(task_on(dataset, tmp_path), progress=stop_after(steps))
    progress = run(task_on(dataset, tmp_path))
    assert list(points(tmp_path, "step/loss")) == list(range(9))
    found = points(tmp_path, "epoch/validation_loss")
    assert [found[step] for step in (2, 5, 8)] == pytest.approx([r.val_loss for r in progress.history[1:]])
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
        run(task_on(dataset, tmp_path, config=config), progress=stop_after(5))
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
    model = small_network(freeze_until="conv2")
    run(task_on(dataset, tmp_path, model=model))
    last = last_weights(tmp_path)
    start = weights_of(model)
    assert torch.equal(
        last["model.branches.0.backbone.layers.conv2.weight"], start["branches.0.backbone.layers.conv2.weight"]
    )
    assert not torch.equal(
        last["model.branches.0.backbone.layers.conv3.weight"], start["branches.0.backbone.layers.conv3.weight"]
    )
    assert "momentum.branches.0.backbone.layers.conv2.weight" not in last


def test_a_photograph_that_disappears_is_named(tmp_path):
    dataset = pictures(tmp_path / "pictures")
    task = task_on(dataset, tmp_path / "run", config=replace(CONFIG, memory_gb=0.0))
    gone = task.train.samples[3]
    gone.source.unlink()
    with pytest.raises(OSError, match=gone.source.name):
        run(task)
