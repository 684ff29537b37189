"""What a training says of itself: steps.csv, epochs.csv, nonfinite.csv and TensorBoard; without what was done twice."""

from __future__ import annotations

import csv
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from types import TracebackType

from ..data.contract import cell
from ..files import read_csv, write_csv, written_whole
from ..metrics import Epoch, NonFinite


@dataclass(frozen=True)
class Step:
    """A line of steps.csv."""

    step: int  # from the beginning of the training
    epoch: int
    batch: int  # of the epoch
    loss: float
    accuracy: float
    gradient_norm: float
    lr: float


STEPS = tuple(field.name for field in fields(Step))


class Log:
    """Open for one session; records of steps that are about to be done again are dropped first.

    Args:
        folder: of the run.
        step: the next one, from 0.
        fresh: whether the training begins; what another one has left is removed.
        write: whether this process writes at all.
    """

    def __init__(self, folder: Path, step: int, *, fresh: bool, write: bool = True):
        self.folder, self._write = folder, write
        if not write:
            return
        from lightning_fabric.loggers import TensorBoardLogger

        folder.mkdir(parents=True, exist_ok=True)
        if fresh:
            shutil.rmtree(folder / "tensorboard", ignore_errors=True)
            for name in ("nonfinite.csv", "epochs.csv"):
                (folder / name).unlink(missing_ok=True)
        path = folder / "steps.csv"
        before = [row for row in _whole_rows(path) if int(row["step"]) < step] if step else []
        with written_whole(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=STEPS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(before)
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, fieldnames=STEPS, lineterminator="\n")
        self._board = TensorBoardLogger(
            folder, name="tensorboard", version="", purge_step=step, filename_suffix=f".{step}"
        )

    def step(self, step: Step) -> None:
        """Write down one step."""
        if self._write:
            values = asdict(step)
            self._writer.writerow(values)
            self._file.flush()
            numbers = {f"step/{name}": values[name] for name in STEPS[3:] if math.isfinite(values[name])}
            self._board.log_metrics(numbers, step.step)

    def epoch(self, history: Sequence[Epoch], step: int) -> None:
        """The table of epochs so far; `step` is the next one."""
        if not self._write:
            return
        write_csv(self.folder / "epochs.csv", [asdict(epoch) for epoch in history])
        last = history[-1]
        numbers = {
            f"epoch/{name.replace('val_', f'{last.held_out}_')}": value
            for name, value in asdict(last).items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        self._board.log_metrics(numbers, max(0, step - 1))  # the last of its steps: a later session begins after it

    def nonfinite(self, events: Sequence[NonFinite]) -> None:
        """The batches that were left out, and the one that ended the run."""
        if self._write:
            rows = [{**asdict(event), "images": cell("; ".join(event.images))} for event in events]
            write_csv(self.folder / "nonfinite.csv", rows)

    def flush(self) -> None:
        """What has been said so far stays, whatever happens."""
        if self._write:
            self._board.save()
            self._board.experiment.flush()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._write:
            self._file.close()
            self._board.finalize("success" if kind is None else "failed")


def _whole_rows(path: Path) -> list[dict[str, str]]:
    """Rows up to the first that a kill has torn."""
    if not path.exists():
        return []
    rows = []
    for row in read_csv(path):
        if None in row or None in row.values() or not row["step"].isdigit():
            break
        rows.append(row)
    return rows
