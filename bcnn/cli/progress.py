"""Progress in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..progress import Progress


@contextmanager
def progress_bars(
    *, show: bool = True, overall: str | None = None, in_bytes: bool = False, transient: bool = False
) -> Iterator[Progress]:
    """One bar per stage, with the time that is left; on the error stream, so that pipes get results alone.

    Args:
        show: whether to draw anything.
        overall: the stage that goes on while others come and go; those that are over make room then.
        in_bytes: whether bytes are counted, rather than images or steps.
        transient: whether the bars vanish at the end.
    """
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
        *columns, console=Console(stderr=True), disable=not show, transient=transient, speed_estimate_period=120
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
