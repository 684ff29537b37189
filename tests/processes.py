"""The command in processes of its own, which can be killed: forked from one that has imported everything already.

A Python that starts anew takes five seconds for torch and its friends; a fork takes none, and is as real a process.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

_IMPORTED = [
    "torch", "torch._dynamo", "lightning_fabric", "tensorboardX", "matplotlib.figure", "scipy.optimize",
    "matplotlib.backends.backend_agg", "bcnn.cli", "bcnn.runs.train", "bcnn.runs.finetune", "bcnn.finetune.loop",
]  # fmt: skip
HANGS_AFTER_S = 80
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(_IMPORTED)


class Running:
    """A command that has been started: ``python -m bcnn ARGUMENTS``."""

    def __init__(
        self, *arguments: object, env: dict[str, str] | None = None, before: Callable[[], object] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._said = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        words = ["bcnn", *map(str, arguments)]
        self._process = _SERVER.Process(
            target=_main, args=(words, self._said, {**os.environ, **(env or {})}, before), daemon=True
        )
        self._process.start()

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def said(self) -> tuple[str, str]:
        """Standard output and the error stream so far."""
        out, err = (path.read_text(errors="replace") if path.exists() else "" for path in self._said)
        return out, err

    def wait(self, timeout: float = 240) -> CompletedProcess[str]:
        """How it ended, and what it said."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
        said = self.said()
        assert code is not None, f"still running after {timeout} s: {''.join(said)}"
        self._folder.cleanup()
        return CompletedProcess([], code, *said)


def slowly(seconds: float) -> None:
    """A hook for `before`: pauses around every file that takes its place, so that others can act in between."""
    replace = Path.replace

    def with_pauses(self: Path, target: Path) -> Path:
        time.sleep(seconds)
        result = replace(self, target)
        time.sleep(seconds)
        return result

    Path.replace = with_pauses  # type: ignore[method-assign]


def run(*arguments: object, **options: Any) -> CompletedProcess[str]:
    """The command from beginning to end."""
    return Running(*arguments, **options).wait()


def run_team(*arguments: object, size: int = 2, timeout: float = 240, **options: Any) -> list[CompletedProcess[str]]:
    """The command in several processes with the environment that torchrun gives them."""
    with _meeting_point(size) as shared:
        own = ({**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size))
        team = [Running(*arguments, env=env, **options) for env in own]
        deadline = time.monotonic() + timeout
        while any(member.poll() is None for member in team) and time.monotonic() < deadline:
            time.sleep(0.01)
        hanging = [rank for rank, member in enumerate(team) if member.poll() is None]
        told = [f"process {rank}, exit code {one.poll()}: {''.join(one.said())}" for rank, one in enumerate(team)]
        for rank in hanging:
            team[rank].send_signal(signal.SIGKILL)
        assert not hanging, f"still running after {timeout} s: {hanging}\n" + "\n".join(told)
        return [member.wait() for member in team]


@contextlib.contextmanager
def _meeting_point(size: int) -> Iterator[dict[str, str]]:
    """A store at a port that is free for sure, as torchrun's agent keeps one."""
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size), "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "tests",
        "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
    }  # fmt: skip


def _main(words: list[str], said: list[Path], env: dict[str, str], before: Callable[[], object] | None) -> None:
    import bcnn.__main__ as command

    for stream, path in zip((sys.stdout, sys.stderr), said, strict=True):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(file, 1 if stream is sys.stdout else 2)
    faulthandler.dump_traceback_later(HANGS_AFTER_S, file=2)  # where it hangs, if it does
    os.environ.clear()  # the server keeps the environment that it was started with
    os.environ.update(env)
    sys.argv = words
    if before is not None:
        before()
    sys.modules["__main__"] = command  # for what starts the same command again
    command.main()
