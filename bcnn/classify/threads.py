"""One-vs-rest problems side by side: a thread each, which beats threads inside each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

T = TypeVar("T")


def side_by_side(solve: Callable[[int], T], num_problems: int) -> Iterator[T]:
    """What `solve` gives for problems 0, 1, ..., in this order; few problems keep the threads to themselves."""
    threads = torch.get_num_threads()
    inference = torch.is_inference_mode_enabled()  # a thread's own setting

    def one(j: int) -> T:
        with torch.inference_mode(inference):
            return solve(j)

    if num_problems < threads:
        yield from map(one, range(num_problems))
        return
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            yield from pool.map(one, range(num_problems))
    finally:
        torch.set_num_threads(threads)  # a worker's setting also becomes the default of threads yet to start
