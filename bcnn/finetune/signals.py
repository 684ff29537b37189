"""SIGTERM and Ctrl-C: heard, noted, and obeyed when the step is done and saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(SystemExit):
    """The training was told to stop and has saved its state; the exit code says by which signal."""


class StopRequest:
    """While open, signals are noted instead of ending the process; a second one ends it as usual."""

    def __init__(self) -> None:
        self.number = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.getsignal(number)  # known before it may be needed
                signal.signal(number, self._hear)
        return self

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        signal.signal(number, self._usual(number))

    def _usual(self, number: int) -> Any:
        """What was done before; a handler that Python does not know cannot be put back."""
        return signal.SIG_DFL if self._before[number] is None else self._before[number]

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number in self._before:
            signal.signal(number, self._usual(number))
