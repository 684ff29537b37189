"""Requests that come together are done together, in order, and none is lost."""

import asyncio
import threading

import pytest

from bcnn.serve.batcher import Batcher, BusyError
from bcnn.serve.limits import Limits


def test_what_comes_together_is_done_together():
    sizes = []

    def work(things):
        sizes.append(len(things))
        return [2 * thing for thing in things]

    async def main():
        batcher = Batcher(work, Limits(batch=4, gather_ms=200))
        found = await asyncio.gather(*(batcher.do([i, i + 100]) for i in range(4)))
        batcher.close()
        return found

    assert asyncio.run(main()) == [[2 * i, 2 * i + 200] for i in range(4)]
    assert sizes == [4, 4]


def test_an_error_reaches_those_who_wait_and_the_next_batch_is_done():
    def work(things):
        if "bad" in things:
            raise ValueError("bad")
        return things

    async def main():
        batcher = Batcher(work, Limits(batch=1))
        with pytest.raises(ValueError, match="bad"):
            await batcher.do(["bad"])
        assert await batcher.do(["good"]) == ["good"]
        batcher.close()

    asyncio.run(main())


def test_a_full_queue_is_refused_and_what_took_too_long_makes_room():
    free = threading.Event()

    def work(things):
        free.wait(20)
        return things

    async def main():
        batcher = Batcher(work, Limits(queue=3, time_s=0.1, batch=1))
        with pytest.raises(BusyError):
            await batcher.do([1, 2, 3, 4])
        with pytest.raises((TimeoutError, asyncio.TimeoutError)):
            await batcher.do([1, 2, 3])
        assert batcher._count == 0
        free.set()
        assert await Batcher(work, Limits()).do([5]) == [5]
        batcher.close()

    asyncio.run(main())
