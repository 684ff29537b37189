"""Time and memory of one-vs-rest SVMs from the Gram matrix, next to scikit-learn's LinearSVC: `bcnn bench svm`.

Descriptors as the improved B-CNN's of VGG-16 have them: 131,328 numbers of length 1, with a part common to all, a part
of the class, and much of their own. They are written to a file, and every contender reads it in a process of its own.
LinearSVC is given some of the one-vs-rest problems and scaled to all; its preparations are counted once. Other work on
the machine moves the times by half, so that every case has the same number of rounds, and the slowest is told, too.

Run:      bcnn bench svm --out runs/bench         (--quick: seconds)
Cost:     about seven minutes on two cores, 9 GB of memory (LinearSVC's), 1 GB of disk
Expected: benchmarks/results/
"""

from __future__ import annotations

import multiprocessing
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import machine
from ..classify.fit import fit_classifier
from ..classify.gram import as_matrix

Tick = Callable[[str, int], None]
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Settings:
    """How large."""

    num_samples: int = 2000
    num_features: int = 131_328
    num_classes: int = 100
    num_problems: int = 2  # of LinearSVC
    rounds: int = 2  # of every case
    C: float = 1.0
    sklearn_tol: float = 1e-4  # LinearSVC's default
    goals: tuple[str, str] = ("at most 1/50", "at most 1/3")  # of time, of memory


QUICK = Settings(num_samples=200, num_features=2000, num_classes=10, goals=("", ""))


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    group: str
    case: str
    num_problems: int  # solved, of one a class
    total_s: float  # for all classes, by the fastest round
    slowest_s: float  # likewise, by the slowest
    ratio: float  # to LinearSVC, for all classes
    memory_mb: float  # the most that was resident
    memory_ratio: float
    difference: float | None = None  # of decision values to LinearSVC's, the largest
    gap: float | None = None  # duality gap, the largest
    time_goal: str = ""
    memory_goal: str = ""


@dataclass(frozen=True)
class Outcome:
    """What a contender hands back from its process."""

    total_s: float
    slowest_s: float
    memory_mb: float
    decisions: Array  # (n, num_problems)
    gap: float | None = None


def run(settings: Settings, tick: Tick = lambda label, total: None) -> list[Row]:
    """LinearSVC, then ours without and with the cross-validation that calibrates probabilities."""
    s = settings
    group = f"{s.num_samples} samples of {s.num_features} features, {s.num_classes} classes, hinge, C={s.C:g}"
    contenders: dict[str, Callable[[Path, Settings, int], Outcome]] = {
        f"LinearSVC, tol={s.sklearn_tol:g}, {s.num_problems} problems scaled to all": linear_svc,
        "bcnn, all classes": gram_svm,
        "bcnn, all classes, and 5-fold calibration": calibrated_svm,
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        _apart(write_descriptors, path, settings)
        tick(group, 1 + len(contenders))
        outcomes = []
        for contender in contenders.values():
            outcomes.append(_apart(contender, path, settings, torch.get_num_threads()))
            tick(group, 1 + len(contenders))
    first = outcomes[0]
    rows = [
        Row(
            group, case, s.num_problems if i == 0 else s.num_classes, o.total_s, o.slowest_s, o.total_s / first.total_s,
            o.memory_mb, o.memory_mb / first.memory_mb,
            difference=float(abs(o.decisions - first.decisions).max()) if i else None, gap=o.gap,
        )
        for i, (case, o) in enumerate(zip(contenders, outcomes, strict=True))
    ]  # fmt: skip
    rows[1] = replace(rows[1], time_goal=s.goals[0], memory_goal=s.goals[1])
    return rows


def _apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value from a fresh process, so that memory is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def write_descriptors(path: Path, settings: Settings) -> None:
    """Signed roots of a common part, a part of the class and noise, each row of length 1; a block of rows at a time."""
    n, d, k = settings.num_samples, settings.num_features, settings.num_classes
    generator = torch.Generator().manual_seed(0)
    common, parts = torch.randn(d, generator=generator), torch.randn(k, d, generator=generator)
    file = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(n, d))
    for start in range(0, n, 100):
        own = labels_of(settings)[start : start + 100]
        strength = 0.02 + 0.1 * torch.rand(len(own), 1, generator=generator)  # some are nearly all noise
        x = 0.7 * common + strength * parts[own] + torch.randn(len(own), d, generator=generator)
        x = x.sign() * x.abs().sqrt()
        file[start : start + 100] = torch.nn.functional.normalize(x).numpy()
    file.flush()


def labels_of(settings: Settings) -> Array:
    """Classes of equal size, in turn."""
    return np.arange(settings.num_samples) % settings.num_classes


def gram_svm(path: Path, settings: Settings, threads: int, calibrate: bool = False) -> Outcome:
    """Ours, for all classes."""
    torch.set_num_threads(threads)
    spent = []
    for _ in range(settings.rounds):
        begin = time.perf_counter()
        features = as_matrix(np.load(path, mmap_mode="r"))
        fitted = fit_classifier(features, labels_of(settings), settings.num_classes, C=settings.C, calibrate=calibrate)
        spent.append(time.perf_counter() - begin)
    memory = peak_mb()
    decisions = fitted.scores(features)[:, : settings.num_problems].numpy()
    return Outcome(min(spent), max(spent), memory, decisions, fitted.gap)


def calibrated_svm(path: Path, settings: Settings, threads: int) -> Outcome:
    """Ours, with held-out scores by five folds."""
    return gram_svm(path, settings, threads, calibrate=True)


def linear_svc(path: Path, settings: Settings, threads: int) -> Outcome:
    """scikit-learn's, for a few classes; liblinear runs on one thread."""
    features = np.load(path)
    problems = range(settings.num_problems)
    prepared, solved = [], []  # a value a round; a value a round and problem
    _fit_svc(features, settings, 0, num_iters=1)  # the first one touches fresh memory, and takes twice as long
    for _ in range(settings.rounds):
        prepared.append(_fit_svc(features, settings, 0, num_iters=1)[0])
        fits = [_fit_svc(features, settings, j, num_iters=10_000) for j in problems]
        solved.append([spent for spent, _ in fits])
    decisions = np.stack([values for _, values in fits], 1)
    fastest, slowest = (
        scaled(pick(prepared), pick(np.mean(solved, 1)), settings.num_classes) for pick in (np.min, np.max)
    )
    # Preparations that were slow by chance can make the slow rounds look short.
    return Outcome(fastest, max(fastest, slowest), peak_mb(), decisions)


def scaled(prepared: float, solved: float, num_classes: int) -> float:
    """Time for all classes from that of one, preparations (with one iteration, in our disfavour) counted once."""
    return float(prepared + num_classes * max(0.0, solved - prepared))


def _fit_svc(features: Array, settings: Settings, problem: int, *, num_iters: int) -> tuple[float, Array]:
    """Seconds and decision values of one problem."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    svc = LinearSVC(loss="hinge", dual=True, C=settings.C, tol=settings.sklearn_tol, max_iter=num_iters, random_state=0)
    with warnings.catch_warnings():
        if num_iters == 1:
            warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        svc.fit(features, labels_of(settings) == problem)
    return time.perf_counter() - start, svc.decision_function(features)


def peak_mb() -> float:
    """The most memory that was resident in this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def to_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as dictionaries, the machine and versions beside every one."""
    import sklearn

    about = {**machine.describe(), "sklearn": sklearn.__version__}
    return [{**asdict(row), **about} for row in rows]
