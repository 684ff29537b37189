"""See the package: ``python -m tests.attack``."""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import torch

from . import hostile, images, kills, words
from .arena import KINDS, Arena

DOCS = Path(__file__).parents[2] / "docs" / "attack.md"
Cases = Iterator[Callable[[], None]]

# Share of the time, how many cases, and what makes them.
GROUPS: dict[str, tuple[float, int, Callable[[Arena, int], Cases]]] = {
    "kills": (0.14, 60, lambda arena, num: kills.at_random(arena, calm(arena), num)),
    "renames": (0.14, 200, lambda arena, num: kills.at_renames(arena, calm(arena), num)),
    "signals": (0.12, 60, lambda arena, num: kills.signals(arena, calm(arena), num)),
    "twins": (0.05, 20, lambda arena, num: kills.twins(arena, calm(arena), num)),
    "disks": (0.07, 30, lambda arena, num: kills.full_disks(arena, calm(arena), num)),
    "images": (0.08, 2000, images.attack),
    "lines": (0.25, 2000, words.attack),
    "models": (0.05, 300, hostile.models),
    "folders": (0.06, 150, hostile.run_folders),
    "results": (0.02, 60, hostile.results_files),
    "names": (0.02, 30, hostile.class_names),
}


@cache
def calm(arena: Arena) -> kills.Undisturbed:
    """What the commands find when they are left in peace, found once."""
    return kills.Undisturbed(arena)


HEAD = """# Under attack

`make attack` treats the command as badly as it can, for at most 15 minutes, and counts what becomes of it. It is no
part of `make test`. This is what it last found; the file is written by it.

- **tried**: commands, or images of a dataset.
- **refused**: the command ends with a reason in one line; an image is named with a reason and left out.
- **succeeded**: it does what was asked.
- **stopped**: it was killed or told to stop, and ended by that.
- **tracebacks**: of Python, crashes, and whatever is not said in words. **hangs**: minutes for work of seconds.
- **changed**: other results than a command that was left in peace, half-written files left behind, or files of others
  touched. After every kill, signal and full disk the same command is given again, and its results are compared
  bit by bit.

A group that is not done when its share of the time is over is cut off: a busy machine tries fewer.
Forged files, whose checksum was left out on purpose, may say whatever can be believed; a damaged one may not.
"""


def table(arena: Arena, seconds: float, seed: int) -> str:
    """The counts as Markdown."""
    rows = [f"| what | {' | '.join(KINDS)} |", f"|---|{'---:|' * len(KINDS)}"]
    for row, tally in arena.tallies.items():
        rows.append(f"| {row} | {' | '.join(str(tally.counts[kind]) for kind in KINDS)} |")
    sums = [str(sum(tally.counts[kind] for tally in arena.tallies.values())) for kind in KINDS]
    rows.append(f"| **all** | {' | '.join(sums)} |")
    notes = [f"- {row}: {tally.note}." for row, tally in arena.tallies.items() if tally.note]
    facts = f"Seed {seed}, {timedelta(seconds=round(seconds))} on {os.cpu_count()} cores, {platform.machine()}, "
    facts += f"{platform.system()}, Python {platform.python_version()}, torch {torch.__version__}."
    return "\n".join([HEAD, *rows, "", *notes, *([""] if notes else []), facts, ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0, help="at most; groups that do not finish are cut off")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=list(GROUPS), help="some groups, which share the time")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="commands at a time")
    parser.add_argument("--out", type=Path, default=DOCS, help="the table")
    given = parser.parse_args()
    begin = time.monotonic()
    chosen = given.only or list(GROUPS)
    with tempfile.TemporaryDirectory(prefix="bcnn-attack-") as root:
        arena = Arena(Path(root), given.seed, given.workers)
        left = sum(GROUPS[name][0] for name in chosen)
        for name in chosen:
            share, num, make = GROUPS[name]
            cases = make(arena, num)  # with what has to be there first
            remaining = 60 * given.minutes - 20 - (time.monotonic() - begin)  # what is unused goes to the next ones
            arena.deadline = time.monotonic() + remaining * share / left
            left -= share
            print(f"{name}: at most {num} cases in {remaining * share / (left + share):.0f} s", flush=True)
            arena.each(cases)
            text = table(arena, time.monotonic() - begin, given.seed)
            given.out.write_text(text)
    print(text)
    faults = [fault for tally in arena.tallies.values() for fault in tally.faults]
    print(f"{len(faults)} to look into." if faults else "Nothing to look into.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
