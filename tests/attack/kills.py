"""Commands that are killed, told to stop, started twice, or find the disk full; then given again.

Whatever happened, the command that is given again ends with the results of one that was left in peace.
"""

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tests.descriptors.images import picture_folder

from .arena import SMALL, TUNED, Arena, ended, left_over, remove, results_of


def commands(arena: Arena) -> dict[str, Callable[[Path], list[object]]]:
    """What is attacked, by name: from where to write to the words of the command."""
    pictures, model = arena.root / "many", arena.root / "model"
    if not pictures.exists():
        picture_folder(pictures, classes=3, train=10, test=4)  # several chunks of descriptors
    if not model.exists():
        arena.expect("train", arena.pictures, *SMALL, "--out", model)
    return {
        "extract": lambda out: ["extract", pictures, *SMALL, "--out", out],
        "train": lambda out: ["train", pictures, *SMALL, "--out", out],
        "fine-tune": lambda out: ["train", pictures, *SMALL, *TUNED, "--out", out],
        "evaluate": lambda out: ["evaluate", model, pictures, "--out", out],
        PREDICT: lambda out: ["predict", model, pictures / "train", "--batch", 1, "--out", written(PREDICT, out)],
    }  # fmt: skip


PREDICT = "predict --out"


def place_of(arena: Arena, name: str) -> Path:
    """A new folder for one case, and the run folder in it."""
    out = arena.folder() / "out"
    out.parent.mkdir()
    return out


def written(name: str, out: Path) -> Path:
    return out.with_suffix(".csv") if name == PREDICT else out


class Undisturbed:
    """What each command finds, how long it takes, and how many files it puts in their places."""

    def __init__(self, arena: Arena):
        self.found: dict[str, dict[str, object]] = {}
        self.seconds: dict[str, float] = {}
        self.renames: dict[str, int] = {}
        for name, words in commands(arena).items():
            out = place_of(arena, name)
            begin = time.monotonic()
            arena.expect(*words(out), before=partial(count_renames, out.parent / "count"))
            self.seconds[name] = time.monotonic() - begin
            self.renames[name] = len((out.parent / "count").read_text())
            self.found[name] = results_of(written(name, out))
            assert self.found[name], name


def again(arena: Arena, row: str, name: str, out: Path, calm: Undisturbed) -> None:
    """Give the command again; its results are those of a calm one, and nothing half-written is left."""
    words = commands(arena)[name](out)
    target = written(name, out)
    if name == PREDICT and target.exists():
        result = None  # it had finished: the file is there, and is not overwritten
    else:
        result = arena.run(*words)
        if result is None or result.returncode != 0:
            arena.judge(row, [name, "again"], result)
            arena.changed(row, f"{name}: given again it does not finish")
            return
    if results_of(target) != calm.found[name]:
        arena.changed(row, f"{name}: other results after {row}")
    left = [file for file in left_over(out) if result is not None]
    if left:
        arena.changed(row, f"{name}: left behind {left}")
    remove(out.parent)


# --- kills ------------------------------------------------------------------------------------------------------------


def at_random(arena: Arena, calm: Undisturbed, num: int) -> Iterator[Callable[[], None]]:
    """SIGKILL at a random moment."""
    row = "SIGKILL at random moments, then again"
    chosen = arena.random(row)
    names = list(commands(arena))

    def case(name: str, share: float) -> None:
        out = place_of(arena, name)
        process = arena.start(*commands(arena)[name](out))
        time.sleep(share * calm.seconds[name])
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        arena.judge(row, [name, f"after {share:.2f}"], ended(process), stopped_by=signal.SIGKILL)
        again(arena, row, name, out, calm)

    for number in range(num):
        yield partial(case, names[number % len(names)], chosen.random())


def at_renames(arena: Arena, calm: Undisturbed, num: int) -> Iterator[Callable[[], None]]:
    """SIGKILL just before and just after every file takes its place."""
    row = "SIGKILL before and after every rename, then again"
    moments = [
        (name, number, after)
        for name, count in calm.renames.items()
        for number in range(count)
        for after in (False, True)
    ]
    arena.random(row).shuffle(moments)

    def case(name: str, number: int, after: bool) -> None:
        out = place_of(arena, name)
        result = arena.run(*commands(arena)[name](out), before=partial(die_at_rename, number, after))
        arena.judge(row, [name, number, after], result, stopped_by=signal.SIGKILL)
        again(arena, row, name, out, calm)

    yield from (partial(case, *moment) for moment in moments[:num])


def count_renames(path: Path) -> None:
    """A hook: one letter into a file for every file that takes its place."""
    replace = Path.replace

    def counted(self: Path, target: Path) -> Path:
        with path.open("a") as file:
            file.write("x")
        return replace(self, target)

    Path.replace = counted  # type: ignore[method-assign]


def die_at_rename(number: int, after: bool) -> None:
    """A hook: the process is killed at its so many-th rename, before it or after it."""
    replace, seen = Path.replace, [0]

    def deadly(self: Path, target: Path) -> Path:
        is_last = seen[0] == number
        seen[0] += 1
        if is_last and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = replace(self, target)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    Path.replace = deadly  # type: ignore[method-assign]


# --- signals ----------------------------------------------------------------------------------------------------------


def signals(arena: Arena, calm: Undisturbed, num: int) -> Iterator[Callable[[], None]]:
    """SIGINT and SIGTERM at random moments: no traceback, nothing half-written, then again."""
    row = "SIGINT and SIGTERM at random moments, then again"
    chosen = arena.random(row)
    names = ["fine-tune", *commands(arena), "fine-tune"]

    def case(name: str, number: int, share: float) -> None:
        out = place_of(arena, name)
        process = arena.start(*commands(arena)[name](out))
        time.sleep(0.05 + share * calm.seconds[name])
        if process.poll() is None:
            process.send_signal(number)
        told = [name, number, f"after {share:.2f}"]
        arena.judge(row, told, ended(process), stopped_by=number)
        if left_over(out):
            arena.changed(row, f"{told} left behind {left_over(out)}")
        again(arena, row, name, out, calm)

    for number in range(num):
        kind = (signal.SIGINT, signal.SIGTERM)[number % 2]
        yield partial(case, names[number // 2 % len(names)], kind, chosen.random())


# --- two at a time ----------------------------------------------------------------------------------------------------


def twins(arena: Arena, calm: Undisturbed, num: int) -> Iterator[Callable[[], None]]:
    """The same command twice at the same time, into the same place."""
    row = "two processes with the same --out"
    chosen = arena.random(row)
    names = list(commands(arena))

    def case(name: str, share: float) -> None:
        out = place_of(arena, name)
        words = commands(arena)[name](out)
        first = arena.start(*words)
        time.sleep(share * calm.seconds[name])
        second = arena.start(*words)
        kinds = [arena.judge(row, [name, f"second after {share:.2f}"], ended(one)) for one in (first, second)]
        if "succeeded" not in kinds:
            arena.changed(row, f"{name}: neither of two finished")
        again(arena, row, name, out, calm)

    for number in range(num):
        yield partial(case, names[number % len(names)], chosen.choice([0.0, 0.0, chosen.random()]))


# --- full disks -------------------------------------------------------------------------------------------------------


def full_disks(arena: Arena, calm: Undisturbed, num: int) -> Iterator[Callable[[], None]]:
    """A disk of too few kilobytes, then again with room: a small tmpfs, or a bound on the size of files."""
    row = "a full disk, then again with room"
    chosen = arena.random(row)
    by_mount = can_mount(arena.folder())
    arena.tally(row).note = (
        "" if by_mount else "no tmpfs may be mounted here: files are bounded by RLIMIT_FSIZE instead"
    )
    names = list(commands(arena))

    def case(name: str, kilobytes: int) -> None:
        out = place_of(arena, name)
        words = commands(arena)[name](out)
        if by_mount:
            mount(out.parent, kilobytes)
        try:
            before = None if by_mount else partial(bound_files, 1024 * kilobytes)
            result = arena.run(*words, before=before)
            arena.judge(row, [name, f"{kilobytes} kB"], result)
            if by_mount and result is not None and result.returncode and str(out.parent) not in result.stderr:
                arena.changed(row, f"{name}, {kilobytes} kB: the folder is not named: {result.stderr}")
            if by_mount:
                mount(out.parent, 100_000, "remount,")
            again(arena, row, name, out, calm)
        finally:
            if by_mount:
                subprocess.run(["umount", "-l", str(out.parent)], check=False, stderr=subprocess.DEVNULL)
                remove(out.parent)

    for number in range(num):
        yield partial(case, names[number % len(names)], chosen.choice([4, 8, 16, 32, 64, 128, 256, 512]))


def mount(folder: Path, kilobytes: int, how: str = "") -> None:
    options = f"{how}size={kilobytes}k"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], check=True, stderr=subprocess.DEVNULL)


def can_mount(folder: Path) -> bool:
    folder.mkdir()
    try:
        mount(folder, 64)
    except (OSError, subprocess.CalledProcessError):
        return False
    subprocess.run(["umount", str(folder)], check=True)
    shutil.rmtree(folder)
    return True


def bound_files(size: int) -> None:
    """A hook: no file may grow beyond so many bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
