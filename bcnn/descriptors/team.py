"""The processes that share one job: as many as `torchrun` started, on one machine or several; else one.

Only small messages travel (who does what, everybody is done); descriptors go through the folder that all of them see.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

T = TypeVar("T")
PATIENCE = timedelta(days=7)  # a slow machine may finish long after the others
_ENDED: list[Any] = []  # groups of processes whose job is done


@dataclass(frozen=True)
class Team:
    """The number of this process, and how many there are."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process prints and writes for all of them."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait until all processes have come this far."""
        if self.size > 1:
            with self.together():
                dist.barrier()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Says in one line that another process has ended, where it would be a message about connections."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not re.search("connection|gloo|nccl|timed out", str(error), re.IGNORECASE):
                raise
            raise OSError(
                "expected all processes to finish, got one that did not; what it said stands above. The same command "
                "goes on from here."
            ) from None

    def lead(self, work: Callable[[], T]) -> T:
        """What the leader makes of it, for everybody; if it fails it says why, and the others end without a word."""
        found: tuple[T, ...] = ()  # nothing if it fails
        error: Exception | None = None
        if self.leads:
            try:
                found = (work(),)
            except Exception as caught:
                error = caught
        found = self.agree(found)
        if error is not None:
            raise error
        if not found:
            raise SystemExit(2)
        return found[0]

    def agree(self, value: Any) -> Any:
        """Give all processes the value that the leading one has."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Collect the values of all processes, ordered by rank."""
        if self.size == 1:
            return [value]
        box: list[Any] = [None] * self.size
        dist.all_gather_object(box, value)
        return box


def join() -> Team:
    """The team that `torchrun` or an engine set up, or a team of one."""
    if not dist.is_initialized():
        if int(os.environ.get("WORLD_SIZE", "1")) == 1:
            return Team()
        dist.init_process_group("gloo", timeout=PATIENCE)
    return Team(dist.get_rank(), dist.get_world_size())


def leave() -> None:
    """End of the job; nothing to do for one process.

    The group is kept until the process ends: a network that an error keeps alive would otherwise be its last owner, and
    torch then waits for gloo's threads without letting go of the interpreter's lock, which those may be waiting for.
    """
    if dist.is_initialized():
        _ENDED.append(dist.group.WORLD)
        dist.destroy_process_group()


def default_device() -> str:
    """The GPU of this process where there are any (untested), else the CPU."""
    if torch.cuda.is_available():
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    return "cpu"
