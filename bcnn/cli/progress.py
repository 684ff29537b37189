"""Progress in the terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..progress import Progress


LINE_S = 60.0  # between two lines of one stage
_chosen = {"quiet": False, "verbose": False}


def choose(*, quiet: bool, verbose: bool) -> None:
    """How much all commands say of their progress."""
    if quiet and verbose:
        raise ValueError("expected --quiet or --verbose, got both; leave one out.")
    _chosen.update(quiet=quiet, verbose=verbose)


def is_verbose() -> bool:
    """Whether progress is told in lines."""
    return _chosen["verbose"]


def _lines(*, every_stage: bool, ends: bool) -> Progress:
    """Progress in lines, one a minute, and one where images are done; or when any stage begins and ends."""
    told: dict[str, float] = {}
    last = time.monotonic()

    def progress(stage: str, done: int, total: int, note: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if every_stage:
            is_due = stage not in told or done == total or now - told[stage] >= LINE_S
        else:
            is_due = now - last >= LINE_S or (ends and done == total > 0 and "image" in stage)
        if is_due:
            told[stage] = last = now
            counted = f"{done} of {total}" if total else f"{done}"
            print(f"bcnn: {stage}: {counted}" + (f"; {note}" if note else ""), file=sys.stderr, flush=True)

    return progress


def _in_terminal() -> bool:
    return sys.stderr.isatty()


@contextmanager
def progress_bars(
    *, show: bool = True, overall: str | None = None, in_bytes: bool = False, transient: bool = False
) -> Iterator[Progress]:
    """One bar per stage, with the time that is left; on the error stream, so that pipes get results alone.

    Where that is a file or a pipe, progress comes in plain lines, one a minute.

    Args:
        show: whether to draw anything.
        overall: the stage that goes on while others come and go; those that are over make room then.
        in_bytes: whether bytes are counted, rather than images or steps.
        transient: whether the bars vanish at the end.
    """
    if show and (is_verbose() or not (_chosen["quiet"] or _in_terminal())):
        yield _lines(every_stage=is_verbose(), ends=not transient)
        return
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(),
        rich.DownloadColumn() if in_bytes else rich.MofNCompleteColumn(),
        rich.TextColumn("{task.fields[speed]}"), rich.TimeElapsedColumn(), rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
    )  # fmt: skip
    tasks: dict[str, Any] = {}
    with rich.Progress(
        *columns,
        console=Console(stderr=True),
        disable=not show or _chosen["quiet"],
        transient=transient,
        speed_estimate_period=120,
    ) as bars:

        def progress(stage: str, done: int, total: int, note: str = "") -> None:
            if stage not in tasks:
                for name, before in tasks.items():  # a stage that is over stands still; only images stay in sight
                    if name != overall:
                        bars.stop_task(before)
                        bars.update(before, visible="image" in name and overall is None)
                tasks[stage] = bars.add_task(stage, total=total or None, completed=done, speed="")
            task = bars.tasks[bars.task_ids.index(tasks[stage])]
            speed = f"{task.speed:.1f} images/s" if task.speed and "image" in stage else ""
            shown = f"{stage}\n  {note}" if note else stage
            bars.update(tasks[stage], completed=done, total=total or None, speed=speed, description=shown)

        yield progress
