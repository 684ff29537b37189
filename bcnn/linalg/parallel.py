"""LAPACK on the matrices of a batch side by side, a thread each: on a CPU faster than threads inside each call."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from .autodiff import is_watched

# Below this size a call is too short to be worth a thread (measured with 2 threads).
MIN_DIM = 96


def side_by_side(op: Callable[..., Any], A: Tensor, *, ranks: tuple[int, ...]) -> tuple[Tensor, ...]:
    """``op(A)`` for A of shape (..., d, d), computed matrix by matrix where that is faster. Records no gradient.

    A decomposition leaves a second thread half idle: `bcnn bench matfun` shows the gain. Products do not gain; leave
    them to the batch.

    Args:
        op: a decomposition that takes ``out=``.
        A: matrices, shape (..., d, d).
        ranks: of the results, for one matrix: 1 for (d,), 2 for (d, d).
    """
    d, num_matrices, num_threads = A.shape[-1], A.shape[:-2].numel(), torch.get_num_threads()
    if A.device.type != "cpu" or d < MIN_DIM or min(num_matrices, num_threads) < 2 or is_watched(A):
        return tuple(op(A))
    # Memory comes from this thread: what a worker allocates is mapped anew, page by page.
    flat = A.detach().reshape(-1, d, d)
    results = [flat.new_empty(num_matrices, *(d,) * rank) for rank in ranks]

    inference = torch.is_inference_mode_enabled()  # a thread's own setting, as is the gradient mode

    def one(i: int) -> None:
        with torch.inference_mode(inference), torch.no_grad():
            op(flat[i], out=tuple(result[i] for result in results))

    list(_pool(os.getpid(), num_threads).map(one, range(num_matrices)))  # list: an exception is raised here
    torch.set_num_threads(num_threads)  # a worker's own setting also becomes the default of threads yet to start
    return tuple(result.reshape(*A.shape[:-2], *result.shape[1:]) for result in results)


@functools.lru_cache(maxsize=1)
def _pool(_pid: int, num_threads: int) -> ThreadPoolExecutor:
    # One pool a process: threads do not survive a fork, so the process is part of the key.
    return ThreadPoolExecutor(num_threads, "bcnn", initializer=torch.set_num_threads, initargs=(1,))
