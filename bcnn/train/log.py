"""What a training says of itself: steps.csv, epochs.csv, nonfinite.csv and TensorBoard; without what was done twice."""

from __future__ import annotations

import csv
from pathlib import Path
from types import TracebackType
from typing import Any

from ..files import read_csv, write_csv, written_whole
from .checkpoint import Progress

STEPS = ("step", "epoch", "batch", "loss", "accuracy", "gradient_norm", "lr")


class Log:
    """Open for one session; records of steps that are about to be done again are dropped first.

    Args:
        folder: of the run.
        step: the next one, from 0.
        write: whether this process writes at all.
    """

    def __init__(self, folder: Path, step: int, *, write: bool = True):
        self.folder, self._write = folder, write
        if not write:
            return
        from lightning_fabric.loggers import TensorBoardLogger

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "steps.csv"
        before = [row for row in _whole_rows(path) if int(row["step"]) < step] if step else []
        with written_whole(path) as temporary, temporary.open("w", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=STEPS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(before)
        self._file = path.open("a", newline="")
        self._writer = csv.DictWriter(self._file, fieldnames=STEPS, lineterminator="\n")
        self._board = TensorBoardLogger(folder, name="tensorboard", version="", purge_step=step if step else None)

    def step(self, **values: Any) -> None:
        """One step."""
        if self._write:
            self._writer.writerow(values)
            self._file.flush()
            self._board.log_metrics({f"step/{k}": values[k] for k in STEPS[3:]}, values["step"])

    def epoch(self, progress: Progress, step: int) -> None:
        """The table of epochs so far."""
        if not self._write:
            return
        write_csv(self.folder / "epochs.csv", progress.history)
        numbers = {k: v for k, v in progress.history[-1].items() if isinstance(v, int | float)}
        self._board.log_metrics({f"epoch/{name}": value for name, value in numbers.items()}, step)
        self._board.save()

    def nonfinite(self, progress: Progress) -> None:
        """The batches that were left out."""
        if self._write:
            write_csv(
                self.folder / "nonfinite.csv",
                [{**event, "images": "; ".join(event["images"])} for event in progress.nonfinite],
            )

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
