"""Stochastic gradient descent, epoch by epoch; interrupted at any moment, it goes on to the very same weights.

Paper: Sec. 3.2, "Training and evaluation".
A step is one batch of `batch_size` images, of which each process takes its share and works on a few at a time. The loss
is the mean over the whole batch, however it is shared.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from ..data.contract import Sample
from ..errors import GradientExceptionWarning
from ..models.bcnn import BCNN
from ..models.files import save as save_model
from . import checkpoint, guard
from .checkpoint import BEST, LAST, Progress
from .config import FinetuneConfig
from .log import Log
from .module import Trained, make_optimizer, set_learning_rate
from .plan import Item, Plan, learning_rate, share_of
from .signals import Interrupted, StopRequest
from .source import Source

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Tick(Protocol):
    """Hears of progress: stage, done, in all, and what there is to say besides."""

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None: ...


@dataclass(frozen=True)
class Images:
    """Samples, and where their pixels or maps come from."""

    samples: Sequence[Sample]
    source: Source

    def labels(self, items: Sequence[Item]) -> Tensor:
        """The classes, shape (B,)."""
        return torch.tensor([self.samples[number].label for number, _ in items])


@dataclass(frozen=True)
class Task:
    """All that a training works with."""

    model: BCNN  # with a classifier
    start: str | None  # the frozen layer whose output the sources give
    train: Images
    held_out: Images | None  # for the choice of the epoch
    config: FinetuneConfig
    flips: bool
    seed: int
    batch: int  # images at a time
    folder: Path
    identity: dict[str, Any]  # what makes it this training


def finetune(task: Task, fabric: Fabric, *, resume: bool = True, tick: Tick) -> Progress:
    """Train, and leave the best network in `task.model` and in best.safetensors."""
    return _Training(task, fabric, tick).run(resume=resume)


class _Training:
    """One session."""

    def __init__(self, task: Task, fabric: Fabric, tick: Tick):
        self.task, self.fabric, self.tick = task, fabric, tick
        self.plan = Plan(len(task.train.samples), task.config.batch_size, task.flips, task.seed)
        self.optimizer = make_optimizer(task.model, task.config)
        self.parameters = [p for p in task.model.parameters() if p.requires_grad]
        self.stop = StopRequest()
        self.num_exceptions = 0  # of this step and process
        self.saved_at = time.monotonic()

    # --- the whole --------------------------------------------------------------------------------------------------

    def run(self, *, resume: bool) -> Progress:
        """Epochs until the last one is done."""
        task = self.task
        self.network, self.wrapped_optimizer = self._set_up()
        found = checkpoint.load(task.folder / LAST, task.model, self.optimizer, task.identity) if resume else None
        self.progress = found or Progress()
        self.log = Log(task.folder, self._step, write=self.fabric.is_global_zero)
        with self.log, self.stop, _counted_exceptions(self):
            if not self.progress.history:
                self._record_epoch(0)
            self._tell()
            while self.progress.epoch <= task.config.epochs:
                self._epoch()
        self._take_best()
        return self.progress

    def _set_up(self) -> tuple[Any, Any]:
        task = self.task
        task.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        backbone: Any = task.model.backbone
        if task.config.checkpoint_activations:
            backbone.checkpoint_activations()
        if task.config.compile:
            backbone.compile()
        self.trained = Trained(task.model, task.start)
        return self.fabric.setup(self.trained, self.optimizer)

    @property
    def _step(self) -> int:
        """Batches done, from the beginning."""
        return (self.progress.epoch - 1) * self.plan.num_batches + self.progress.batch

    def _epoch(self) -> None:
        """From wherever it stands to its end."""
        progress, rank, size = self.progress, self.fabric.global_rank, self.fabric.world_size
        batches = self.plan.epoch(progress.epoch)[progress.batch :]
        shares = [share_of(batch, rank, size) for batch in batches]
        own = [item for share, _ in shares for item in share]
        sizes = [len(part) for share, _ in shares for part in self._parts(share)]
        values = self.task.train.source.batches(own, sizes)
        self.network.train()
        for batch, (share, count) in zip(batches, shares, strict=True):
            began = time.monotonic()
            self._one_step(len(batch), share, count, values)
            progress.epoch_s += time.monotonic() - began
            self._tell()
            self._save_if_due()
        self._record_epoch(progress.epoch)

    def _parts(self, share: Sequence[Item]) -> list[Sequence[Item]]:
        """A few images at a time."""
        return [share[start : start + self.task.batch] for start in range(0, len(share), self.task.batch)]

    # --- a step -----------------------------------------------------------------------------------------------------

    def _one_step(self, num_images: int, share: Sequence[Item], count: int, values: Iterator[Tensor]) -> None:
        progress, config = self.progress, self.task.config
        self.plan.seed_step(progress.epoch, progress.batch, self.fabric.global_rank)
        epochs_done = progress.epoch - 1 + progress.batch / self.plan.num_batches
        lr = learning_rate(config, epochs_done)
        set_learning_rate(self.optimizer, lr)
        parts = self._parts(share)
        inputs: list[Tensor] = []
        weight = self.fabric.world_size / num_images if count else 0.0
        sums = torch.zeros(4, dtype=torch.float64)  # loss, right, failed, told to stop
        for part in parts:
            began = time.monotonic()
            inputs.append(next(values))
            progress.wait_s += time.monotonic() - began
            self._one_part(inputs[-1], part, weight, sums, last=part is parts[-1])
        norm = self._gradient_norm() if not sums[2] else float("nan")
        progress.num_exceptions += int(self._total(torch.tensor([float(self.num_exceptions)])))
        self.num_exceptions = 0
        if sums[2] or not norm < float("inf"):
            self._not_finite(parts, inputs)
        else:
            if config.clip is not None:
                self.fabric.clip_gradients(self.network, self.wrapped_optimizer, max_norm=config.clip)
            self.wrapped_optimizer.step()
            progress.num_in_a_row = 0
            progress.loss_sum += float(sums[0])
            progress.num_right += int(sums[1])
            progress.num_seen += num_images
        self.wrapped_optimizer.zero_grad()
        self.log.step(
            step=self._step, epoch=progress.epoch, batch=progress.batch, loss=float(sums[0]) / num_images,
            accuracy=float(sums[1]) / num_images, gradient_norm=norm, lr=lr,
        )  # fmt: skip
        progress.batch += 1
        if sums[3]:
            self._leave()

    def _one_part(self, values: Tensor, part: Sequence[Item], weight: float, sums: Tensor, *, last: bool) -> None:
        """Forward and backward of a few images; the last ones of a step bring all processes together."""
        labels = self.task.train.labels(part).to(self.fabric.device)
        counted = weight > 0
        loss = None
        with self.fabric.no_backward_sync(self.network, enabled=not last and self.fabric.world_size > 1):
            try:
                scores = self.network(values)
                loss = functional.cross_entropy(scores.float(), labels, reduction="sum")
                sums[0] += float(loss.detach()) * counted
                sums[1] += int((scores.argmax(-1) == labels).sum()) * counted
                sums[2] += not bool(loss.isfinite())
            except ArithmeticError:
                sums[2] += 1
            if last:
                sums[3] = self.stop.number
                sums.copy_(self._total(sums))
            if loss is not None and not sums[2]:
                self.fabric.backward(loss * weight)

    def _total(self, sums: Tensor) -> Tensor:
        """Over all processes."""
        if self.fabric.world_size == 1:
            return sums
        return self.fabric.all_reduce(sums.to(self.fabric.device), reduce_op="sum").cpu()  # type: ignore[union-attr]

    def _gradient_norm(self) -> float:
        grads = [p.grad for p in self.parameters if p.grad is not None]
        return float(torch.nn.utils.get_total_norm(grads))

    def _not_finite(self, parts: Sequence[Sequence[Item]], inputs: Sequence[Tensor]) -> None:
        """Name layer and images, count, and stop if so configured."""
        progress = self.progress
        self.wrapped_optimizer.zero_grad()
        found = None
        for part, values in zip(parts, inputs, strict=True):
            where = guard.find_layer(self.trained, values, self.task.train.labels(part).to(values.device))
            if where is not None:
                found = (*where, tuple(self.task.train.samples[number].name for number, _ in part))
                break
        everybody = [found]
        if self.fabric.world_size > 1:
            everybody = [None] * self.fabric.world_size
            torch.distributed.all_gather_object(everybody, found)
        what, layer, images = next((one for one in everybody if one), ("gradient", "the sum over the batch", ()))
        event = guard.Event(progress.epoch, progress.batch, what, layer, images)
        progress.nonfinite.append(event.record())
        progress.num_in_a_row += 1
        self.log.nonfinite(progress)
        try:
            guard.decide(event, self.task.config.on_nonfinite, progress.num_in_a_row)
        except ArithmeticError:
            progress.nonfinite.pop()
            progress.num_in_a_row = 0
            self._save()
            raise
        if self.fabric.is_global_zero:
            warnings.warn(GradientExceptionWarning(f"finetune: skipped: {event}."), stacklevel=2)

    # --- between steps ----------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        progress = self.progress
        done = min(progress.batch * self.plan.batch_size, self.plan.num_images)
        seen = max(progress.num_seen, 1)
        note = f"loss {progress.loss_sum / seen:.3f}, accuracy {100 * progress.num_right / seen:.1f} %"
        if progress.nonfinite:
            note += f", {len(progress.nonfinite)} steps skipped"
        if progress.history and progress.history[-1].get("val_accuracy") is not None:
            note += f"; validation {100 * progress.history[-1]['val_accuracy']:.1f} %"
        total = self.plan.num_images * self.task.config.epochs
        before = (progress.epoch - 1) * self.plan.num_images
        self.tick("training images", before + done, total, f"epoch {progress.epoch}: {note}")

    def _save_if_due(self) -> None:
        due = time.monotonic() - self.saved_at > 60 * self.task.config.checkpoint_minutes
        if due and self.progress.batch < self.plan.num_batches:
            self._save()

    def _save(self) -> None:
        if self.fabric.is_global_zero:
            path = self.task.folder / LAST
            checkpoint.save(path, self.task.model, self.optimizer, self.progress, self.task.identity)
        self.saved_at = time.monotonic()

    def _leave(self) -> None:
        self._save()
        number = self.stop.number or signal.SIGTERM  # another process heard it
        raise Interrupted(128 + number if self.fabric.is_global_zero else 0)

    def _record_epoch(self, epoch: int) -> None:
        """Validate, note, keep the best, save."""
        progress = self.progress
        record: dict[str, Any] = {"epoch": epoch, "train_loss": None, "train_accuracy": None}
        if epoch and progress.num_seen:
            record["train_loss"] = progress.loss_sum / progress.num_seen
            record["train_accuracy"] = progress.num_right / progress.num_seen
        record |= {"val_loss": None, "val_accuracy": None}
        if self.task.held_out is not None:
            record["val_loss"], record["val_accuracy"] = self._validate(self.task.held_out)
        record |= {"num_skipped": sum(event["epoch"] == epoch for event in progress.nonfinite)}
        record |= {"time_s": progress.epoch_s, "wait_s": progress.wait_s}
        progress.history.append(record)
        if epoch == 0 or self._is_best(record):
            progress.best_epoch = epoch
            if self.fabric.is_global_zero:
                save_model(self.task.model, self.task.folder / BEST, notes={"epoch": epoch})
        if epoch:
            progress.epoch, progress.batch = epoch + 1, 0
        progress.loss_sum, progress.num_right, progress.num_seen = 0.0, 0, 0
        progress.epoch_s = progress.wait_s = 0.0
        self.log.epoch(progress, self._step)
        self._save()

    def _is_best(self, record: dict[str, Any]) -> bool:
        """By loss or accuracy, then by the other; the last one where there is nothing to choose by."""
        if record["val_accuracy"] is None:
            return True

        def merit(one: dict[str, Any]) -> tuple[float, float]:
            by_loss = self.task.config.select_by == "loss"
            loss, accuracy = -one["val_loss"], one["val_accuracy"]
            return (loss, accuracy) if by_loss else (accuracy, loss)

        return merit(record) > merit(self.progress.best)

    @torch.no_grad()
    def _validate(self, images: Images) -> tuple[float, float]:
        """Mean loss and accuracy, scores averaged over the views, as at the test."""
        self.network.eval()
        numbers = range(self.fabric.global_rank, len(images.samples), self.fabric.world_size)
        views = (False, True) if self.task.flips else (False,)
        items = [(number, mirrored) for number in numbers for mirrored in views]
        sums = torch.zeros(4, dtype=torch.float64)
        parts = self._parts(items[:: len(views)])
        coming = images.source.batches(items, [len(views) * len(part) for part in parts])
        for part, values in zip(parts, coming, strict=True):
            scores = self._scores(values).unflatten(0, (-1, len(views))).mean(1)
            labels = images.labels(part).to(scores.device)
            sums[0] += float(functional.cross_entropy(scores, labels, reduction="sum"))
            sums[1] += int((scores.argmax(-1) == labels).sum())
        sums = self._total(sums)
        return float(sums[0]) / len(images.samples), float(sums[1]) / len(images.samples)

    def _scores(self, values: Tensor) -> Tensor:
        """Outside of the parallel wrapper, which wants all processes to call it equally often."""
        with self.fabric.autocast():
            return self.trained(values).float()

    def _take_best(self) -> None:
        """The weights of the best epoch."""
        from safetensors.torch import load_file

        self.fabric.barrier()
        self.task.model.load_state_dict(load_file(self.task.folder / BEST))
        self.task.model.eval()


@contextmanager
def _counted_exceptions(training: _Training) -> Iterator[None]:
    """Gradient rules warn of infinite and NaN entries each time; in a training they are counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", GradientExceptionWarning)
        show = warnings.showwarning

        def count(message: Any, *arguments: Any, **options: Any) -> None:
            if isinstance(message, GradientExceptionWarning) and message.num_matrices:
                training.num_exceptions += message.num_matrices
            else:
                show(message, *arguments, **options)

        warnings.showwarning = count
        yield
