r"""One-vs-rest linear SVMs from the Gram matrix, exact: the paper's classifier (Sec. 3.2, "C = 1").

.. math:: \min_{w, b} \tfrac12 (\|w\|^2 + b^2) + C \sum_i \max(0, 1 - y_i (w^T x_i + b))

or the squares of the losses, each times the weight of its sample, if weights are given; the bias is regularised, as in
liblinear and scikit-learn's LinearSVC. `admm` takes all classes near their solutions, `together` makes them exact;
those left over are finished one by one, by `active`, after `interior` where need be. With more samples than columns the
Gram matrix is not formed (`kernel.Thin`), and classes are done some at a time.

Paper: Sec. 3.2.
Legend: K Gram matrix (n, n); beta = y * multipliers (n, k), so that w = X^T beta and b = sum beta.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ..errors import NotConvergedWarning
from ..progress import Progress, silent
from . import admm
from .active import polish
from .dual import Dual, make_dual
from .interior import interior
from .kernel import Kernel, as_kernel
from .threads import side_by_side
from .together import polish_together

TOL = 1e-6  # of decision values, whose targets are +-1
NUM_ADMM = 100  # at most; the active set seldom needs more
NUM_ADMM_THIN = 200  # where a step is cheap
NEAR = 1e-2  # a tolerance from which on the method that comes near is enough
NEAR_CHANGE = 1e-3  # of multipliers, when decision values are right to about ten times as much
NEARER = (NEAR_CHANGE, NEAR_CHANGE / 10, NEAR_CHANGE / 100)  # for what the active set does not finish at once
NUM_SOLVES = 12  # of the active set, which settles in a few or never
NUM_AT_ONCE = 4 * 2**20  # multipliers, of all samples and some classes, where there are many samples


@dataclass(frozen=True)
class SVMSolution:
    """Weights as combinations of the samples, and how good they are."""

    beta: Tensor  # (n, k) float64
    bias: Tensor  # (k,) float64
    gap: float  # the largest duality gap of a class; half the squared error of its weights is at most this
    num_iters: int  # products of K with all classes, plus the factorisations for the slowest one
    converged: bool


def solve_svm(
    K: Tensor | Kernel,
    labels: Tensor,
    num_classes: int,
    *,
    C: float = 1.0,
    squared: bool = False,
    sample_weight: Tensor | None = None,
    tol: float = TOL,
    max_iters: int = 200,
    warm: Tensor | None = None,
    warm_scores: Tensor | None = None,
    progress: Progress = silent,
) -> SVMSolution:
    """All one-vs-rest SVMs of one Gram matrix.

    Args:
        K: Gram matrix without bias, float64, shape (n, n), or a kernel that has not formed it.
        labels: whole numbers below `num_classes`, shape (n,).
        num_classes: k. Two classes are one problem, mirrored.
        C: weight of the losses.
        squared: squared hinge instead of hinge.
        sample_weight: positive numbers, float64, shape (n,), that multiply the losses; None: all are 1.
        tol: aimed at in decision values of the samples, targets being +-1; ten times as much is still taken for good.
            From 1e-2 on nothing is made exact: multipliers may then lie a little outside their bounds.
        max_iters: of each step, at most.
        warm: beta of a similar problem to start from, shape (n, k).
        warm_scores: decision values of that problem, shape (n, k), if its beta had other samples besides these.
        progress: hears how many classes are done, of how many.

    Returns: the solution; `converged` is False, and a NotConvergedWarning given, if a class missed that.
    """
    kernel = check_problem("solve_svm", K, labels, num_classes, C, sample_weight)
    binary = num_classes == 2
    wanted = torch.tensor([1]) if binary else torch.arange(num_classes)
    at_once = max(1, NUM_AT_ONCE // len(kernel)) if kernel.thin else len(wanted)
    dual = make_dual(kernel, torch.empty(len(kernel), 0).double(), C, squared=squared, sample_weight=sample_weight)
    beta, gaps, good = torch.empty(len(kernel), len(wanted)).double(), [], []
    num_iters = 0
    for classes in torch.arange(len(wanted)).split(at_once):
        some = replace(dual, Y=torch.where(labels.long()[:, None] == wanted[classes], 1.0, -1.0).double())
        run = _Run(some, tol, max_iters, partial(_say, progress, int(classes[0]), len(wanted)))
        start = None if warm is None else warm[:, wanted[classes]] * dual.unit
        values = None if warm_scores is None else warm_scores[:, wanted[classes]]
        if not (tol >= NEAR and run.finish_near(start, values)) and not run.finish_by_rank():
            run.finish_from_admm(start)
        beta[:, classes] = run.B / dual.unit
        gaps.append(run.gap / dual.unit)
        good.append(run.good())
        num_iters = max(num_iters, run.num_iters)
    gap, bad = float(torch.cat(gaps).max()), int((~torch.cat(good)).sum())
    if bad:
        _warn(bad, len(wanted), gap, C)
    beta = torch.cat([-beta, beta], 1) if binary else beta
    return SVMSolution(beta, beta.sum(0), gap, num_iters, not bad)


def _say(progress: Progress, before: int, total: int, done: int) -> None:
    progress("train", before + done, total)


class _Run:
    """The best points so far of all classes, and what is still to be done."""

    def __init__(self, dual: Dual, tol: float, max_iters: int, done: Callable[[int], None]):
        self.dual, self.tol, self.max_iters, self.done = dual, tol, max_iters, done
        self.B = torch.zeros_like(dual.Y)
        self.gap = dual.gap(self.B, self.B)
        self.num_iters = 0
        self.near = False  # whether near is enough, and reached
        self.L: Tensor | None = None  # factor of K, if its rank is small

    def finish_near(self, warm: Tensor | None, values: Tensor | None) -> bool:
        """Come near the solutions of all classes and leave it at that; False if even that was not reached."""
        state = self._near(warm, values)
        if state.settled:
            self.B, self.near, self.num_iters = admm.multipliers(self.dual, state), True, state.num_iters
            feasible = self.dual.clip(self.B)
            self.gap = self.dual.gap(feasible, self.dual.K @ feasible)
            self.done(self.dual.num_classes)
        return state.settled

    def finish_by_rank(self) -> bool:
        """Solve all classes by interior points where a formed K has a small rank; a squared hinge's never has."""
        self.L = None if self.dual.squared else self.dual.K.low_rank()
        if self.L is None or self.dual.K.thin:
            return False
        self.num_iters = self._each(self._from_inside)
        return True

    def finish_from_admm(self, warm: Tensor | None) -> None:
        """Solve all classes: near the solution together, then each to the end."""
        dual, state = self.dual, self._near(warm)
        image = dual.K @ state.Z
        self.B, self.gap, allowed = state.Z, dual.gap(state.Z, image), dual.allowed_gap(state.Z, image, self.tol)
        guess, products = dual.Y * (state.Z + state.U), 0
        if self.max_iters > NUM_SOLVES:
            products = self._finish_together(state, guess, allowed)

        def finish(j: int) -> int:
            solves = 0
            if self.gap[j] > allowed[j]:
                solves = self._polish(j, self.B[:, j], guess[:, j])
            if self.gap[j] > allowed[j]:
                solves += self._from_inside(j)
            return solves

        self.num_iters = state.num_iters + products + self._each(finish)

    def _finish_together(self, state: admm.State, guess: Tensor, allowed: Tensor) -> int:
        """All classes to the end; where a step is cheap, those that do not get there come nearer and try again.

        Keeps the best points and, in `guess`, the last guesses; returns the number of products.
        """
        left, total = torch.arange(self.dual.num_classes), 0
        for tol in NEARER if self.dual.K.thin else NEARER[:1]:
            if tol < NEAR_CHANGE:
                own = admm.State(state.Z[:, left], state.U[:, left], state.rho)
                nearer = self._advance(self.dual.of(left), own, tol)
                guess[:, left] = self.dual.Y[:, left] * (nearer.Z + nearer.U)
                state = replace(
                    nearer, Z=state.Z.index_copy(1, left, nearer.Z), U=state.U.index_copy(1, left, nearer.U)
                )
                total += nearer.num_iters
            some = self.dual.of(left)
            B, gap, products = polish_together(some, state.Z[:, left], guess[:, left], allowed[left])
            better = gap < self.gap[left]
            self.B[:, left[better]], self.gap[left[better]] = B[:, better], gap[better]
            total += products
            left = left[self.gap[left] > allowed[left]]
            if not len(left):
                break
        return total

    def _near(self, warm: Tensor | None, values: Tensor | None = None) -> admm.State:
        """A state near the solutions."""
        dual = self._cheap(self.dual)
        given = (None if x is None else x.to(dual.Y.dtype) for x in (warm, values))
        return self._advance(self.dual, admm.start(dual, *given), NEAR_CHANGE)

    def _advance(self, dual: Dual, state: admm.State, tol: float) -> admm.State:
        cheap = self._cheap(dual)
        state = replace(state, Z=state.Z.to(cheap.Y.dtype), U=state.U.to(cheap.Y.dtype))
        most = NUM_ADMM_THIN if dual.K.thin else NUM_ADMM
        admm.iterate(cheap, state, num_iters=min(most, self.max_iters), tol=tol)
        return replace(state, Z=dual.clip(state.Z.double()), U=state.U.double())

    @staticmethod
    def _cheap(dual: Dual) -> Dual:
        """In float32 where products with all samples would take longest."""
        return dual.single() if dual.K.thin else dual

    def good(self, classes: slice = slice(None)) -> Tensor:
        """Which classes are as right as promised, ten times what is aimed at, and as far as float64 can tell at all."""
        B, promised = self.B[:, classes], 10 * self.tol
        if self.near:
            return torch.ones(B.shape[1], dtype=torch.bool)
        known = self.dual.noise(B).amax(0) < 2 * max(promised, 10 * TOL)
        return (self.gap[classes] <= self.dual.of(classes).allowed_gap(B, self.dual.K @ B, promised)) & known

    def _each(self, solve: Callable[[int], int]) -> int:
        """Do all classes side by side; returns the most iterations."""
        most = 0
        for j, count in enumerate(side_by_side(solve, self.dual.num_classes)):
            self.done(j + 1)
            most = max(most, count)
        return most

    def _polish(self, j: int, b: Tensor, guess: Tensor) -> int:
        found, gap, solves = polish(self.dual.of(slice(j, j + 1)), b, guess, max_iters=min(NUM_SOLVES, self.max_iters))
        if gap < self.gap[j]:
            self.B[:, j], self.gap[j] = found, gap
        return solves

    def _from_inside(self, j: int) -> int:
        total = 0
        for L in (self.L, None):  # the factor is faster, the whole of K bears larger C
            b, guess, steps = interior(self.dual.of(slice(j, j + 1)), L, max_iters=self.max_iters)
            total += steps + self._polish(j, b, guess)
            if L is None or bool(self.good(slice(j, j + 1))):
                break
        return total


def _warn(bad: int, total: int, gap: float, C: float) -> None:
    warnings.warn(
        f"solve_svm: {bad} of {total} classes did not reach the tolerance (largest duality gap {gap:.1e}, C={C:g}). "
        "Their weights are usable, not exact; scale the descriptors to length 1, lower C, or raise max_iters.",
        NotConvergedWarning,
        stacklevel=3,
    )


def check_problem(
    who: str, K: Tensor | Kernel, labels: Tensor, num_classes: int, C: float, sample_weight: Tensor | None = None
) -> Kernel:
    """The kernel; raises for what no classifier can be trained from."""
    shape = tuple(K.shape) if isinstance(K, Tensor) else (len(K), len(K))
    if len(shape) != 2 or shape[0] != shape[1] or len(labels) != len(K):
        raise ValueError(f"{who}: expected K (n, n) and n labels, got {shape} and {len(labels)} labels.")
    if not 0 < C < float("inf"):
        raise ValueError(f"{who}: expected C > 0 and finite, got {C}.")
    if num_classes < 2:
        raise ValueError(f"{who}: expected at least 2 classes, got {num_classes}.")
    if int(labels.min()) < 0 or int(labels.max()) >= num_classes:
        raise ValueError(
            f"{who}: expected labels from 0 to {num_classes - 1}, got {int(labels.min())} to {int(labels.max())}."
        )
    if sample_weight is None:
        return as_kernel(K)
    if sample_weight.shape != labels.shape or sample_weight.dtype != torch.float64:
        raise ValueError(
            f"{who}: expected {len(labels)} sample weights, {torch.float64}, got shape {tuple(sample_weight.shape)}, "
            f"{sample_weight.dtype}."
        )
    low, high = float(sample_weight.min()), C * float(sample_weight.max())
    if not (low > 0 and high < float("inf")):
        raise ValueError(
            f"{who}: expected sample weights > 0 and finite, times C too, got {low} to {float(sample_weight.max())}; "
            "leave out samples of weight 0."
        )
    return as_kernel(K)
