"""Images through a network side by side: each thread takes some of them and computes with few threads inside.

Threads that do not wait for each other after every step are faster than threads inside of each step, by far so where
others work on the same machine.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor


def in_parts(function: Callable[[Tensor], Tensor], images: Tensor, *, most: int) -> Tensor:
    """``function(images)`` in parts of at most so many images, side by side if there are threads; no gradients.

    Args:
        function: from images (B, ...) to results (B, ...), image by image.
        images: all of them.
        most: images in a part.
    """
    threads = torch.get_num_threads()
    workers = min(threads, len(images))
    parts = images.split(max(1, min(most, -(-len(images) // max(1, workers)))))
    if workers < 2:
        return torch.cat([function(part) for part in parts])
    inference = torch.is_inference_mode_enabled()  # a thread's own setting, as is the gradient mode

    def one(part: Tensor) -> Tensor:
        with torch.inference_mode(inference), torch.no_grad():
            return function(part)

    results = list(_pool((os.getpid(), workers, threads // workers)).map(one, parts))
    torch.set_num_threads(threads)  # a worker's own setting also becomes the default of threads yet to start
    return torch.cat(results)


@functools.lru_cache(maxsize=1)
def _pool(key: tuple[int, int, int]) -> ThreadPoolExecutor:
    # One pool a process: threads do not survive a fork, so the process is the first part of the key.
    _, workers, threads = key
    return ThreadPoolExecutor(workers, "engine", initializer=torch.set_num_threads, initargs=(threads,))
