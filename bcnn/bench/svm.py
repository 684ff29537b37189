"""Time and memory of one-vs-rest SVMs from the Gram matrix, next to scikit-learn's LinearSVC: `bcnn bench svm`.

Descriptors as the improved B-CNN's of VGG-16 have them: 131,328 numbers of length 1, with a part common to all, a
part of the class, and much of their own; and short ones of many images, as narrow projections give. They are written
to a file, and every contender reads it in a process of its own. LinearSVC is given some of the one-vs-rest problems
and scaled to all; its preparations are counted once. Other work on the machine moves the times by half, so that every
case has the same number of rounds, and the slowest is told, too.

A case that memory does not allow is refused before the work, and the table says why. `--shapes goal` is every
combination of 1,000, 10,000 and 100,000 descriptors of 528, 8,192 and 131,328 numbers in 10, 100 and 1,000 classes.

Run:      bcnn bench svm --out runs/bench         (--quick: seconds)
          bcnn bench svm --shapes goal --out runs/bench          (a day and 60 GB of disk; not run as a whole yet)
          bcnn bench svm --shapes 100000x8192x1000 --out runs/bench         (beside the tables that are there)
Cost:     about ten minutes on two cores, 9 GB of memory (LinearSVC's), 1 GB of disk
Expected: benchmarks/results/
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..classify.fit import fit_classifier
from ..classify.gram import as_matrix
from ..machine import available_memory
from ..progress import Progress, silent
from ..report.tables import Column, Layout, Record
from .settings import Svm

Array = np.ndarray[Any, Any]

NUM_PROBLEMS = 2  # one-vs-rest problems that LinearSVC solves
ROUNDS = 2  # of every case
LONG_S = 600  # a round that takes longer is not repeated
GOAL = ",".join(f"{n}x{d}x{k}" for n in (1000, 10_000, 100_000) for d in (528, 8192, 131_328) for k in (10, 100, 1000))
TOL = 1e-4  # LinearSVC's default
C = 1.0
WIDE = 131_328
GOALS = {"time_goal": "at most 1/50", "memory_goal": "at most 1/3"}  # of our own, for wide descriptors
GOALS_MANY = {"time_goal": "at most 1"}  # for others


@dataclass(frozen=True)
class Shape:
    """How many descriptors, numbers in each, and classes."""

    num_samples: int
    descriptor_length: int
    num_classes: int


def read_shapes(text: str) -> list[Shape]:
    """From SAMPLESxLENGTHxCLASSES, separated by commas.

    Example:
        >>> read_shapes("2000x528x25")
        [Shape(num_samples=2000, descriptor_length=528, num_classes=25)]
    """
    shapes = []
    for one in (GOAL if text == "goal" else text).split(","):
        parts = one.strip().split("x")
        if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise ValueError(
                f"bench svm: expected --shapes as SAMPLESxLENGTHxCLASSES, such as 2000x528x25, got {one!r}."
            )
        shape = Shape(*map(int, parts))
        if not NUM_PROBLEMS < shape.num_classes <= shape.num_samples:
            raise ValueError(
                f"bench svm: expected more than {NUM_PROBLEMS} classes, and a sample of each, got {one!r}; "
                "take more samples, or another number of classes."
            )
        shapes.append(shape)
    return shapes


@dataclass(frozen=True)
class Outcome:
    """What a contender returns from its process."""

    total_s: float  # for all classes, by the fastest round
    slowest_s: float  # likewise, by the slowest
    memory_mb: float  # the most that was resident
    decisions: Array  # (n, NUM_PROBLEMS)
    gap: float | None = None  # duality gap, the largest


@dataclass(frozen=True)
class Refused:
    """A case that was not begun, or ended by the system."""

    why: str


def run(settings: Svm, progress: Progress = silent) -> list[dict[str, Any]]:
    """For every shape LinearSVC, then ours without and with the cross-validation that calibrates probabilities."""
    return [record for shape in read_shapes(settings.shapes) for record in _run_shape(shape, settings.quick, progress)]


def _run_shape(settings: Shape, quick: bool, progress: Progress) -> list[dict[str, Any]]:
    n, d, k = settings.num_samples, settings.descriptor_length, settings.num_classes
    group = f"{n} descriptors of {d} numbers, {k} classes, hinge, C={C:g}"
    contenders: dict[str, Callable[[Path, Shape, int], Outcome | Refused]] = {
        f"LinearSVC, tol={TOL:g}, {NUM_PROBLEMS} problems scaled to all": linear_svc,
        "bcnn, all classes": gram_svm,
        "bcnn, all classes, and calibration": partial(gram_svm, calibrate=True),
    }
    outcomes: dict[str, Outcome | Refused] = {}
    too_much = _disk_refuses(settings)
    if too_much:
        return [{"group": group, "case": "none", "refused": too_much}]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "descriptors.npy"
        apart(write_descriptors, path, settings)
        progress(group, 1, 1 + len(contenders))
        for case, contender in contenders.items():
            try:
                outcomes[case] = apart(contender, path, settings, torch.get_num_threads())
            except MemoryError as error:
                outcomes[case] = Refused(str(error))
            progress(group, 1 + len(outcomes), 1 + len(contenders))
    import sklearn  # not before: Linux counts what this process holds as memory of those that it starts

    theirs, *_ = outcomes.values()
    records = [
        {"group": group, "case": case, "sklearn": sklearn.__version__, **_record(own, theirs, k)}
        for case, own in outcomes.items()
    ]
    records[1] |= {} if quick else GOALS if d >= WIDE else GOALS_MANY
    return records


def _record(own: Outcome | Refused, theirs: Outcome | Refused, num_classes: int) -> dict[str, Any]:
    """What is known of one case; ratios and differences where both were measured."""
    if isinstance(own, Refused):
        return {"refused": own.why}
    known = {
        "num_problems": NUM_PROBLEMS if own is theirs else num_classes, "total_s": own.total_s,
        "slowest_s": own.slowest_s, "memory_mb": own.memory_mb, "gap": own.gap,
    }  # fmt: skip
    if isinstance(theirs, Refused):
        return known
    return known | {
        "ratio": own.total_s / theirs.total_s, "memory_ratio": own.memory_mb / theirs.memory_mb,
        "difference": None if own is theirs else float(abs(own.decisions - theirs.decisions).max()),
    }  # fmt: skip


def _disk_refuses(settings: Shape) -> str:
    """Why there is no place for the descriptors; empty if there is."""
    need, free = 4.0 * settings.num_samples * settings.descriptor_length, shutil.disk_usage(tempfile.gettempdir()).free
    return f"{need / 1e9:.0f} GB of descriptors, {free / 1e9:.0f} GB of free disk" if need > 0.9 * free else ""


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value from a fresh process, so that memory is its own; MemoryError if the system ended it."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(function, *arguments).result()
        except BrokenProcessPool:
            raise MemoryError("its process was ended by the system, as happens where memory runs out") from None


def write_descriptors(path: Path, settings: Shape) -> None:
    """Signed roots of a common part, a part of the class and noise, each row of length 1; a block of rows at a time."""
    n, d, k = settings.num_samples, settings.descriptor_length, settings.num_classes
    generator = torch.Generator().manual_seed(0)
    common, parts = torch.randn(d, generator=generator), torch.randn(k, d, generator=generator)
    file = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 100):
        own = labels_of(settings)[start : start + 100]
        strength = 0.02 + 0.1 * torch.rand(len(own), 1, generator=generator)  # some are nearly all noise
        strength = strength * (WIDE / d) ** 0.25  # as far above the noise in short ones
        x = 0.7 * common + strength * parts[own] + torch.randn(len(own), d, generator=generator)
        x = x.sign() * x.abs().sqrt()
        file[start : start + 100] = torch.nn.functional.normalize(x).numpy()
    file.flush()


def labels_of(settings: Shape) -> Array:
    """Labels of classes of equal size, which take turns."""
    return np.arange(settings.num_samples) % settings.num_classes


def gram_svm(path: Path, settings: Shape, threads: int, calibrate: bool = False) -> Outcome:
    """Ours, for all classes; with held-out scores if calibrated."""
    torch.set_num_threads(threads)
    spent = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        descriptors = as_matrix(np.load(path, mmap_mode="r"))
        fitted = fit_classifier(descriptors, labels_of(settings), settings.num_classes, C=C, calibrate=calibrate)
        spent.append(time.perf_counter() - begin)
        if spent[-1] > LONG_S:
            break
    memory = peak_mb()
    decisions = fitted.scores(descriptors)[:, :NUM_PROBLEMS].numpy()
    return Outcome(min(spent), max(spent), memory, decisions, fitted.gap)


def linear_svc(path: Path, settings: Shape, _threads: int) -> Outcome | Refused:
    """scikit-learn's, for a few classes; liblinear runs on one thread."""
    need, free = 28.0 * settings.num_samples * settings.descriptor_length, available_memory()
    if free is not None and need > free:  # float32, its copy in float64, and liblinear's own with indices
        return Refused(f"{need / 1e9:.0f} GB of memory for three copies of the descriptors, {free / 1e9:.0f} GB free")
    descriptors = np.load(path)
    problems = range(NUM_PROBLEMS)
    prepared, solved = [], []  # one value per round; one per round and problem
    _fit_svc(descriptors, settings, 0, num_iters=1)  # the first one touches fresh memory, and takes twice as long
    for _ in range(ROUNDS):
        prepared.append(_fit_svc(descriptors, settings, 0, num_iters=1)[0])
        fits = [_fit_svc(descriptors, settings, j, num_iters=10_000) for j in problems]
        solved.append([spent for spent, _ in fits])
        if sum(solved[-1]) > LONG_S:
            break
    decisions = np.stack([values for _, values in fits], 1)
    fastest, slowest = (
        scaled(pick(prepared), pick(np.mean(solved, 1)), settings.num_classes) for pick in (np.min, np.max)
    )
    # Preparations that were slow by chance can make the slow rounds look short.
    return Outcome(fastest, max(fastest, slowest), peak_mb(), decisions)


def scaled(prepared: float, solved: float, num_classes: int) -> float:
    """Time for all classes from that of one, preparations (with one iteration, in our disfavour) counted once."""
    return float(prepared + num_classes * max(0.0, solved - prepared))


def _fit_svc(descriptors: Array, settings: Shape, problem: int, *, num_iters: int) -> tuple[float, Array]:
    """Seconds and decision values of one problem."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    svc = LinearSVC(loss="hinge", dual=True, C=C, tol=TOL, max_iter=num_iters, random_state=0)
    with warnings.catch_warnings():
        if num_iters == 1:
            warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        svc.fit(descriptors, labels_of(settings) == problem)
    return time.perf_counter() - start, svc.decision_function(descriptors)


def peak_mb() -> float:
    """The most memory that was resident in this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def _ratio(key: str) -> Callable[[Record], str]:
    def text(record: Record) -> str:
        number = float(record[key])
        return f"1/{1 / number:.1f}" if number < 1 else f"{number:.1f}"

    return text


LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "case"),
        Column("num_problems"),  # one-vs-rest problems that were solved
        Column("total_s", "all classes, s", ".1f"),
        Column("slowest_s", "slowest, s", ".1f"),
        Column("ratio", "ratio", _ratio("ratio")),
        Column("time_goal", "goal"),
        Column("memory_mb", "MB", ".0f"),
        Column("memory_ratio", "ratio", _ratio("memory_ratio")),
        Column("memory_goal", "goal"),
        Column("difference", "decision values off by", ".1e"),  # the largest
        Column("gap"),
        Column("refused", "refused"),
        Column("sklearn"),
    ),
    note="Descriptors are read from a file, each case in a process of its own; MB: the most that was resident. "
    "Times are of the fastest round; ratios to the first line, whose time is scaled to all classes from the "
    "problems it solved, its preparations counted once; decision values against the first line's, which stops "
    "at its tolerance.",
    bars={"total_s": "s, all classes", "memory_mb": "MB, resident"},
)
