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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..descriptors.extract import batches
from ..errors import GradientExceptionWarning
from ..files import read_tensors
from ..metrics import Epoch, NonFinite
from ..models.bcnn import BCNN
from ..models.files import save as save_model
from ..progress import Progress, silent
from . import checkpoint, guard
from .checkpoint import BEST, LAST, State
from .config import FinetuneConfig
from .log import Log, Step
from .module import Trained, make_optimizer, set_learning_rate
from .plan import Item, Plan, learning_rate, share_of
from .signals import Interrupted, StopRequest
from .step import Batch, Images, Stepper, total
from .validate import validate

if TYPE_CHECKING:
    from lightning_fabric import Fabric


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


def finetune(task: Task, fabric: Fabric, *, resume: bool = True, progress: Progress = silent) -> State:
    """Train, and leave the best network in `task.model` and in best.safetensors."""
    return _Training(task, fabric, progress).run(resume=resume)


class _Training:
    """One session."""

    def __init__(self, task: Task, fabric: Fabric, progress: Progress):
        self.task, self.fabric, self.progress = task, fabric, progress
        self.plan = Plan(len(task.train.samples), task.config.batch_size, task.flips, task.seed)
        self.stop = StopRequest()
        self.saved_at = time.monotonic()
        self._set_up()

    def _set_up(self) -> None:
        task = self.task
        task.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for branch in task.model.branches:
            backbone: Any = branch.backbone
            if task.config.checkpoint_activations:
                backbone.checkpoint_activations()
            if task.config.compile and task.start is None:
                backbone.compile()
            elif task.config.compile:
                backbone.after = torch.compile(backbone.after)
        self.trained = Trained(task.model, task.start)
        self.optimizer = make_optimizer(task.model, task.config)
        self.network, self.wrapped_optimizer = self.fabric.setup(self.trained, self.optimizer)
        self.stepper = Stepper(self.fabric, self.network, self.trained, task.train)

    # --- the whole --------------------------------------------------------------------------------------------------

    def run(self, *, resume: bool) -> State:
        """Epochs until the last one is done."""
        task = self.task
        found = checkpoint.load(task.folder / LAST, task.model, self.optimizer, task.identity) if resume else None
        self.fabric.barrier()  # before the first of them writes a new one
        self.state = found or State()
        self.log = Log(task.folder, self._step, fresh=found is None, write=self.fabric.is_global_zero)
        with self.log, self.stop, self.stepper.counting_exceptions():
            if not self.state.history:
                self._end_epoch(0)
            self._tell()
            while self.state.epoch <= task.config.epochs:
                self._epoch()
        self._leave_if_told()  # what was heard since the last epoch was saved
        self._take_best()
        return self.state

    @property
    def _step(self) -> int:
        """Batches done, from the beginning."""
        return (self.state.epoch - 1) * self.plan.num_batches + self.state.batch

    def _epoch(self) -> None:
        """From wherever it stands to its end."""
        state = self.state
        shares = [self._share(batch) for batch in self.plan.epoch(state.epoch)[state.batch :]]
        parts = [part for share in shares for part in share.parts]
        values = self.task.train.source.batches([item for part in parts for item in part], [len(p) for p in parts])
        self.network.train()
        for share in shares:
            began, waited = time.monotonic(), self.stepper.wait_s
            stop = self._one_step(share, values)
            state.epoch_s += time.monotonic() - began
            state.wait_s += self.stepper.wait_s - waited
            self._tell()
            if stop:
                self._leave()
            self._save_if_due()
        self._end_epoch(state.epoch)

    def _share(self, batch: Sequence[Item]) -> Batch:
        own, count = share_of(batch, self.fabric.global_rank, self.fabric.world_size)
        return Batch(len(batch), count > 0, list(batches(own, self.task.batch)))

    def _one_step(self, batch: Batch, values: Iterator[Tensor]) -> bool:
        """Make one step; returns whether the training has been told to stop."""
        state, config = self.state, self.task.config
        lr = learning_rate(config, state.epoch - 1 + (state.batch + 0.5) / self.plan.num_batches)
        set_learning_rate(self.optimizer, lr)
        self._seed()
        outcome = self.stepper.gradient(batch, values, self.stop.number > 0)
        if outcome.is_finite:
            if config.clip is not None:
                self.fabric.clip_gradients(self.network, self.wrapped_optimizer, max_norm=config.clip)
            self.wrapped_optimizer.step()
            state.num_in_a_row = 0
            state.loss_sum += outcome.loss * batch.num_images
            state.num_right += outcome.num_right
            state.num_seen += batch.num_images
        self.wrapped_optimizer.zero_grad()
        if not outcome.is_finite:
            self._not_finite(batch)
        state.num_exceptions += outcome.num_exceptions
        right = outcome.num_right / batch.num_images
        self.log.step(Step(self._step, state.epoch, state.batch, outcome.loss, right, outcome.norm, lr))
        state.batch += 1
        return outcome.stop

    def _seed(self) -> None:
        self.plan.seed_step(self.state.epoch, self.state.batch, self.fabric.global_rank)

    def _not_finite(self, batch: Batch) -> None:
        """Name layer and images, count, and stop if so configured."""
        state = self.state
        self._seed()
        event = NonFinite(state.epoch, state.batch, *self.stepper.where_not_finite(batch))
        self.wrapped_optimizer.zero_grad()
        self.log.nonfinite([*state.nonfinite, event])
        try:
            guard.decide(event, self.task.config.on_nonfinite, state.num_in_a_row + 1)
        except ArithmeticError:
            state.num_in_a_row = 0
            self._save()
            raise
        state.nonfinite += (event,)
        state.num_in_a_row += 1
        if self.fabric.is_global_zero:
            warnings.warn(GradientExceptionWarning(f"finetune: skipped: {event}."), stacklevel=2)

    # --- between steps ----------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        state = self.state
        done = min(state.batch * self.plan.batch_size, self.plan.num_images)
        seen = max(state.num_seen, 1)
        note = f"loss {state.loss_sum / seen:.3f}, accuracy {100 * state.num_right / seen:.1f} %"
        if state.nonfinite:
            note += f", {len(state.nonfinite)} steps skipped"
        last = state.history[-1]
        if last.val_accuracy is not None:
            note += f"; {last.held_out} {100 * last.val_accuracy:.1f} %"
        total = self.plan.num_images * self.task.config.epochs
        before = (state.epoch - 1) * self.plan.num_images
        self.progress("training images", before + done, total, f"epoch {state.epoch}: {note}")

    def _save_if_due(self) -> None:
        due = time.monotonic() - self.saved_at > 60 * self.task.config.checkpoint_minutes
        if due and self.state.batch < self.plan.num_batches:
            self._save()

    def _save(self) -> None:
        self.log.flush()
        if self.fabric.is_global_zero:
            path = self.task.folder / LAST
            checkpoint.save(path, self.task.model, self.optimizer, self.state, self.task.identity)
        self.saved_at = time.monotonic()

    def _leave(self) -> None:
        self._save()
        number = self.stop.number or signal.SIGTERM  # another process heard it
        raise Interrupted(128 + number if self.fabric.is_global_zero else 0)

    # --- between epochs ---------------------------------------------------------------------------------------------

    def _end_epoch(self, epoch: int) -> None:
        """Validate, note, keep the best, save; leave if told to."""
        state = self.state
        record = self._record(epoch)
        state.history += (record,)
        if epoch == 0 or self._is_best(record):
            state.best_epoch = epoch
            if self.fabric.is_global_zero:
                save_model(self.task.model, self.task.folder / BEST, notes={"epoch": epoch})
        if epoch:
            state.epoch, state.batch = epoch + 1, 0
        state.loss_sum, state.num_right, state.num_seen = 0.0, 0, 0
        state.epoch_s = state.wait_s = 0.0
        self.log.epoch(state.history, self._step)
        self._save()
        self._leave_if_told()

    def _leave_if_told(self) -> None:
        """Leave if any of the processes was told to stop; all is saved."""
        if total(self.fabric, torch.tensor([float(self.stop.number)]))[0]:
            self._leave()

    def _record(self, epoch: int) -> Epoch:
        state, held_out = self.state, self.task.held_out
        seen = state.num_seen if epoch else 0
        val_loss, val_accuracy = (None, None) if held_out is None else self._validate(held_out)
        return Epoch(
            epoch=epoch,
            train_loss=state.loss_sum / seen if seen else None,
            train_accuracy=state.num_right / seen if seen else None,
            val_loss=val_loss,
            val_accuracy=val_accuracy,
            held_out=None if held_out is None else self.task.config.select_on,
            num_skipped=sum(event.epoch == epoch for event in state.nonfinite),
            time_s=state.epoch_s,
            wait_s=state.wait_s,
        )

    def _validate(self, images: Images) -> tuple[float, float]:
        found = validate(
            self.fabric, self.trained, images, flips=self.task.flips, batch=self.task.batch,
            told_to_stop=lambda: self.stop.number > 0,
        )  # fmt: skip
        if found.stop:
            self._leave()
        if found.problem is not None:
            raise guard.spoilt_network(self.state.epoch if self.state.history else 0, *found.problem)
        return found.loss, found.accuracy

    def _is_best(self, record: Epoch) -> bool:
        """Compare loss or accuracy, then the other; without held-out images every epoch is better than the last."""

        def merit(one: Epoch) -> tuple[float, float]:
            assert one.val_loss is not None
            assert one.val_accuracy is not None
            merits = -one.val_loss, one.val_accuracy
            return merits if self.task.config.select_by == "loss" else merits[::-1]

        return self.task.held_out is None or merit(record) > merit(self.state.best)

    def _take_best(self) -> None:
        """The weights of the best epoch."""
        self.fabric.barrier()
        tensors, _ = read_tensors(self.task.folder / BEST, remedy="Begin anew by --no-resume.")
        self.task.model.load_state_dict(tensors)
        self.task.model.eval()
