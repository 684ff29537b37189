"""Requests gathered into batches: one thread works, requests wait for it without holding the server up."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from .limits import Limits

T = TypeVar("T")
R = TypeVar("R")


class BusyError(RuntimeError):
    """More waits than the queue may hold."""


class _Job(Generic[T]):
    """Something to do, and who waits for it."""

    def __init__(self, thing: T):
        self.thing = thing
        self.loop = asyncio.get_running_loop()
        self.result: asyncio.Future[Any] = self.loop.create_future()

    def answer(self, value: Any) -> None:
        """Called by the working thread."""
        self.loop.call_soon_threadsafe(self._settle, value)

    def _settle(self, value: Any) -> None:
        if not self.result.done():  # nobody waits any more if it took too long
            if isinstance(value, BaseException):
                self.result.set_exception(value)
            else:
                self.result.set_result(value)


class Batcher(Generic[T, R]):
    """Does things in batches, in a thread of its own.

    Args:
        work: from a batch of things to as many results.
        limits: the largest batch, how long it gathers, and how much may wait.
    """

    def __init__(self, work: Callable[[Sequence[T]], Sequence[R]], limits: Limits):
        self._work, self._limits = work, limits
        self._waiting: queue.SimpleQueue[_Job[T] | None] = queue.SimpleQueue()
        self._count = 0  # of what waits or is being done; only the event loop changes it
        self._thread = threading.Thread(target=self._run, name="bcnn-serve", daemon=True)
        self._thread.start()

    async def do(self, things: Sequence[T]) -> list[R]:
        """The results of things, which may be done together with those of other requests.

        Raises: BusyError if too much waits already; TimeoutError if it takes too long.
        """
        if self._count + len(things) > self._limits.queue:
            raise BusyError(f"{self._count} images wait already, and {self._limits.queue} are the most.")
        jobs = [_Job(thing) for thing in things]
        for job in jobs:
            self._count += 1
            job.result.add_done_callback(self._one_less)
            self._waiting.put(job)
        try:
            return await asyncio.wait_for(asyncio.gather(*(job.result for job in jobs)), self._limits.time_s)
        finally:
            for job in jobs:
                job.result.cancel()  # those that are left when one failed or the time was up

    def close(self) -> None:
        """End the thread once the batch at hand is done."""
        self._waiting.put(None)
        self._thread.join(timeout=self._limits.time_s)

    def _one_less(self, _: asyncio.Future[Any]) -> None:
        self._count -= 1

    def _gather(self) -> list[_Job[T]] | None:
        """The next batch; None at the end."""
        first = self._waiting.get()
        if first is None:
            return None
        batch, until = [first], time.monotonic() + self._limits.gather_ms / 1000
        while len(batch) < self._limits.batch:
            try:
                job = self._waiting.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                break
            if job is None:
                self._waiting.put(None)
                break
            batch.append(job)
        return batch

    def _run(self) -> None:
        while (batch := self._gather()) is not None:
            jobs = [job for job in batch if not job.result.done()]  # nobody waits for the others any more
            if not jobs:
                continue
            try:
                results: Sequence[Any] = self._work([job.thing for job in jobs])
            except Exception as error:
                results = [error] * len(jobs)
            for job, result in zip(jobs, results, strict=True):
                try:
                    job.answer(result)
                except RuntimeError:  # the server has ended, and its loop with it
                    return
