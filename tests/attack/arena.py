"""Commands in processes of their own, several at a time, and what became of them."""

import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from subprocess import CompletedProcess

from safetensors.torch import load_file

from tests.descriptors.images import picture_folder
from tests.processes import Running

PER_PROCESS = 50  # small commands that follow each other in one process
LIMIT_S = 150.0  # a command that takes longer hangs: all of them are small; a busy machine takes its time
MEMORY = 16 * 2**30  # bytes of addresses; a file that asks for more than that is to be refused, not believed
SMALL = ("--backbone", "tiny", "--weights", "none", "--size", "32", "--preset", "bcnn")
TUNED = ("--finetune", "--epochs", "2", "--batch-size", "6", "--lr", "0.05")
HIDDEN = {".bcnn", ".bcnn.lock"}  # which folders of ours have
KINDS = ("tried", "refused", "succeeded", "stopped", "tracebacks", "hangs", "changed")
FAULT = re.compile(r"Traceback \(most recent call last\)|a fault in the program|Segmentation fault|Fatal Python error")


@dataclass
class Tally:
    """Counts of one row of the table, and what to look into."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    note: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, told: str = "") -> None:
        with self._lock:
            self.counts[kind] += 1
            if kind in ("tracebacks", "hangs", "changed"):
                self.faults.append(f"{kind}: {told}")
                print(f"  {kind}: {told[:2000]}", flush=True)


@dataclass
class Case:
    """One command in a folder of its own."""

    row: str
    words: Sequence[object]
    cwd: Path
    prepare: Callable[[], object]  # makes the folder and what is in it
    check: Callable[[CompletedProcess[str] | None, str], object]  # hears how it ended, and under what that was counted
    told: object = None  # for the list of faults, if it is not the words


class Arena:
    """The place of one attack: a folder, random numbers, a deadline, and one tally per row.

    Args:
        root: a folder for everything.
        seed: of all random choices.
        workers: commands at a time.
    """

    def __init__(self, root: Path, seed: int, workers: int):
        self.root, self.seed, self.workers = root, seed, workers
        self.deadline = 0.0
        self.tallies: dict[str, Tally] = {}
        self._names = 0
        self._lock = threading.Lock()
        self.pictures = picture_folder(root / "pictures", classes=3, train=4, test=2)
        self.env = {
            "BCNN_CACHE": str(root / "cache"), "HOME": str(root), "OMP_NUM_THREADS": "1", "PIP_NO_INDEX": "1",
            "PIP_RETRIES": "0", "npm_config_registry": "http://127.0.0.1:9", "npm_config_fetch_retries": "0",
            "http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "MPLCONFIGDIR": str(root / "mpl"),
            "TMPDIR": str(root), "COLUMNS": "120",
        }  # fmt: skip

    def random(self, name: str) -> random.Random:
        """Random numbers of one group, whatever the others take."""
        return random.Random(f"{self.seed}/{name}")

    def tally(self, row: str) -> Tally:
        return self.tallies.setdefault(row, Tally())

    def folder(self) -> Path:
        """A new name in the arena."""
        with self._lock:
            self._names += 1
            return self.root / f"place{self._names:06d}"

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self.deadline

    def start(self, *words: object, cwd: Path | None = None, before: Callable[[], object] | None = None) -> Running:
        return Running(*words, env=self.env, before=partial(_prepare, cwd or self.root, before))

    def run(
        self, *words: object, cwd: Path | None = None, before: Callable[[], object] | None = None
    ) -> CompletedProcess[str] | None:
        """The command from beginning to end; None if it hangs."""
        return ended(self.start(*words, cwd=cwd, before=before))

    def each(self, cases: Iterable[Callable[[], None]]) -> None:
        """All cases, several at a time, until the time is up."""

        def one(case: Callable[[], None]) -> None:
            if not self.is_over:
                case()

        with ThreadPoolExecutor(self.workers) as threads:
            for done in [threads.submit(one, case) for case in cases]:
                done.result()

    def batches(self, cases: Iterable[Case]) -> Iterator[Callable[[], None]]:
        """The cases, some at a time in one process, since a new one takes as long as the command; the first of
        each batch has a process to itself."""
        coming = iter(cases)
        while some := list(islice(coming, PER_PROCESS)):
            yield partial(self._batch, some)

    def _batch(self, cases: list[Case]) -> None:
        for case in cases:
            case.prepare()
        first, *rest = cases
        self._check(first, self.run(*first.words, cwd=first.cwd))
        while rest and not self.is_over:
            done = self._in_one_process(rest)
            for case, result in zip(rest, done, strict=False):
                self._check(case, result)
            rest = rest[len(done) :]
        remove(*(case.cwd for case in cases))

    def _check(self, case: Case, result: CompletedProcess[str] | None) -> None:
        case.check(result, self.judge(case.row, case.told or case.words, result))

    def _in_one_process(self, cases: Sequence[Case]) -> list[CompletedProcess[str] | None]:
        """How those ended that came to an end; the last of them is None if it hangs, or has ended the process."""
        place = self.folder()
        place.mkdir()
        lines = [json.dumps([list(map(str, case.words)), str(case.cwd)]) for case in cases]
        (place / "todo").write_text("\n".join(lines))
        process = self.start(before=partial(_work_off, place, self.deadline))
        done = place / "done"
        seen, moved = 0, time.monotonic()
        while process.poll() is None and time.monotonic() - moved < LIMIT_S:
            time.sleep(0.02)
            size = done.stat().st_size if done.exists() else 0
            if size != seen:
                seen, moved = size, time.monotonic()
        hangs = process.poll() is None
        if hangs:
            process.send_signal(signal.SIGKILL)
        ended_so = process.wait()
        texts = done.read_text().splitlines() if done.exists() else []
        found: list[CompletedProcess[str] | None] = [CompletedProcess([], *json.loads(text)) for text in texts]
        if len(found) < len(cases) and (hangs or ended_so.returncode):
            found.append(None if hangs else CompletedProcess([], ended_so.returncode, "", ended_so.stderr))
        remove(place)
        return found

    def judge(self, row: str, words: object, result: CompletedProcess[str] | None, *, stopped_by: int = 0) -> str:
        """Count one command under what became of it; returns that."""
        tally = self.tally(row)
        tally.add("tried")
        kind = verdict(result, stopped_by)
        said = "" if result is None else f"exit {result.returncode}: {result.stderr[-1500:]}"
        tally.add(kind, f"{words} -> {said}")
        return kind

    def changed(self, row: str, what: object) -> None:
        self.tally(row).add("changed", str(what))

    def expect(self, *words: object, **options: object) -> None:
        """A command that has to succeed, or there is nothing to attack."""
        result = self.run(*words, **options)  # type: ignore[arg-type]
        assert result is not None, words
        assert result.returncode == 0, (words, result)


def verdict(result: CompletedProcess[str] | None, stopped_by: int = 0) -> str:
    """What became of a command: one of `KINDS`."""
    if result is None:
        return "hangs"
    if FAULT.search(result.stderr) or FAULT.search(result.stdout):
        return "tracebacks"
    if stopped_by and result.returncode in (-stopped_by, 128 + stopped_by):
        return "stopped"
    if result.returncode < 0:
        return "tracebacks"  # the system ended it
    if result.returncode == 0:
        return "succeeded"
    return "refused" if _one_line(result.stderr) else "tracebacks"


def _one_line(said: str) -> bool:
    """Whether the reason is said, in a line of ours or in the box of a wrong option."""
    return any(line.startswith("bcnn: ") for line in said.splitlines()) or "Error" in said or "Usage:" in said


def ended(process: Running, limit: float = LIMIT_S) -> CompletedProcess[str] | None:
    """How a command ended; None if it is killed because it hangs."""
    deadline = time.monotonic() + limit
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    if process.poll() is None:
        print(f"  hangs here: {process.said()[1][-3000:]}", flush=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return None
    return process.wait()


def _prepare(cwd: Path, before: Callable[[], object] | None) -> None:
    """In the new process: where it works, how much memory it may take, and what the case wants."""
    os.chdir(cwd)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    if before is not None:
        before()


def _work_off(place: Path, deadline: float) -> None:
    """In the new process: one command after the other until the time is up; what came of each goes to a file."""
    import bcnn.__main__ as command
    from tests.command import run_command

    sys.modules["__main__"] = command  # for what starts the same command again
    with (place / "done").open("w") as done:
        for line in (place / "todo").read_text().splitlines():
            words, cwd = json.loads(line)
            if time.monotonic() > deadline:
                break
            try:
                ended = run_command(*words, cwd=Path(cwd))
                result = [ended.returncode, ended.stdout[-100_000:], ended.stderr]
            except BaseException:
                result = [1, "", traceback.format_exc()]
            done.write(json.dumps(result) + "\n")
            done.flush()
    os._exit(0)


def results_of(out: Path) -> dict[str, object]:
    """What a command found, without times: bytes of predictions, and tensors of models and descriptors."""
    if out.is_file():
        return {out.suffix: out.read_bytes()}
    found: dict[str, object] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if path.name == "predictions.csv":
            found[name] = path.read_bytes()
        elif path.suffix == ".safetensors" and path.name not in ("last.safetensors", "best.safetensors"):
            found[name] = {key: value.numpy().tobytes() for key, value in load_file(path).items()}
    return found


def left_over(out: Path) -> list[str]:
    """Half-written files that lie about."""
    return [path.name for path in out.parent.rglob(".*") if path.name not in HIDDEN] if out.parent.exists() else []


def remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
