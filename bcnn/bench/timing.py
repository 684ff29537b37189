"""Timing by rounds: every case once per round, so that a slow minute of the machine falls on all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import torch

from ..progress import Progress, silent


@dataclass
class Clock:
    """Times of one case in milliseconds, one value per round."""

    times_ms: list[float] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        """The median of the rounds, in milliseconds."""
        return statistics.median(self.times_ms)

    @property
    def spread(self) -> float:
        """Half the range of the rounds, divided by their median."""
        return (max(self.times_ms) - min(self.times_ms)) / 2 / self.median_ms

    def ratio_to(self, other: Clock) -> float:
        """The median of the ratios, taken round by round."""
        return statistics.median(a / b for a, b in zip(self.times_ms, other.times_ms, strict=False))


def time_rounds(
    runs: Sequence[Callable[[], object]],
    *,
    rounds: int,
    device: str = "cpu",
    slow_ms: float = 1500.0,
    stage: str = "rounds",
    progress: Progress = silent,
) -> list[Clock]:
    """Time each of `runs` once per round after one warm-up; one slower than `slow_ms` in two rounds only."""
    clocks = [Clock() for _ in runs]
    done, total = count(1), len(runs) * (rounds + 1)
    for run in runs:
        run()
        progress(stage, next(done), total)
    for i in range(rounds):
        for run, clock in zip(runs, clocks, strict=True):
            if i < 2 or clock.times_ms[0] < slow_ms:
                clock.times_ms.append(_timed(run, device))
            progress(stage, next(done), total)
    return clocks


def _timed(run: Callable[[], object], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    run()
    wait(device)
    return 1e3 * (time.perf_counter() - start)


def wait(device: str) -> None:
    """Wait until all that was asked of the device is done."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
