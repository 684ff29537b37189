r"""Multinomial logistic regression from the Gram matrix.

.. math:: \min_{W, c} \tfrac12 \|W\|^2 + C \sum_i -\log \mathrm{softmax}(W x_i + c)_{y_i}

each loss times the weight of its sample, if weights are given. The intercepts are free, as in scikit-learn's
LogisticRegression; two classes are its binary problem, whose single weight vector is the difference of ours. With K = L
L^T the rows of L lie to each other as the samples do, so the problem is solved in L's columns, the eigenvectors of K,
by Newton's method with conjugate gradients.

Legend: K Gram matrix (n, n); L factor (n, r); V weights in L's columns (r, k); P probabilities (n, k); beta (n, k).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import NotConvergedWarning
from ..progress import Progress, silent
from .kernel import Kernel
from .svm import check_problem


@dataclass(frozen=True)
class LogisticSolution:
    """Weights as combinations of the samples, and how good they are."""

    beta: Tensor  # (n, k) float64
    bias: Tensor  # (k,) float64
    gap: float  # what the objective's quadratic model promised before the last step: the rest is smaller by orders
    num_iters: int  # Newton steps
    converged: bool


def solve_logistic(
    K: Tensor | Kernel,
    labels: Tensor,
    num_classes: int,
    *,
    C: float = 1.0,
    sample_weight: Tensor | None = None,
    tol: float = 1e-6,
    max_iters: int = 100,
    warm: Tensor | None = None,
    warm_scores: Tensor | None = None,
    progress: Progress = silent,
) -> LogisticSolution:
    """Multinomial logistic regression of one Gram matrix; every class needs a sample.

    Args:
        K: Gram matrix, float64, shape (n, n), or a kernel that has not formed it.
        labels: whole numbers below `num_classes`, shape (n,).
        num_classes: k.
        C: weight of the losses.
        sample_weight: positive numbers, float64, shape (n,), that multiply the losses; None: all are 1.
        tol: stop when a Newton step moves no decision value by more; the error is then far smaller.
        max_iters: Newton steps.
        warm: beta of a similar problem to start from, shape (n, k).
        warm_scores: decision values of that problem, shape (n, k), which its intercepts are taken from.
        progress: hears of each step.

    Returns: the solution; `converged` is False, and a NotConvergedWarning given, if the last step was larger.
    """
    kernel = check_problem("solve_logistic", K, labels, num_classes, C, sample_weight)
    own = C / 2 if num_classes == 2 else C
    Y = torch.nn.functional.one_hot(labels.long(), num_classes).double()
    problem = _Problem(kernel.spectral_factor(), Y, own, Y.new_ones(1) if sample_weight is None else sample_weight)
    x = problem.start(warm, warm_scores)
    change, gap, num_iters = float("inf"), float("inf"), 0
    while change > tol and num_iters < max_iters:
        num_iters += 1
        value, gradient, P = problem.evaluate(x)
        if float(gradient.norm()) <= problem.rounding:
            change = 0.0
            break
        step = problem.newton_step(P, gradient, min(0.1, change))
        x = _line_search(problem, x, value, gradient, step)
        change, gap = problem.change(step), -float((gradient * step).sum()) / 2
        progress("train", num_iters, max_iters)
    if change > tol:
        warnings.warn(
            f"solve_logistic: not converged after {max_iters} Newton steps (decision values move by {change:.1e}; "
            f"tolerance {tol:.0e}). Scale the descriptors to length 1, lower C, or raise max_iters.",
            NotConvergedWarning,
            stacklevel=2,
        )
    return LogisticSolution(problem.to_beta(x), x[-1], gap, num_iters, change <= tol)


class _Problem:
    """The objective over x = V with the intercepts as the last row, shape (r + 1, k)."""

    def __init__(self, L: Tensor, Y: Tensor, C: float, mass: Tensor):
        self.L, self.Y, self.C, self.mass = L, Y, C, mass[:, None]  # mass: of each sample, or one number for all
        self.total = float(mass.expand(len(Y)).sum())
        self.spectrum = L.square().sum(0)  # eigenvalues of K
        size = float(mass.max()) * (float(self.spectrum.sum().sqrt()) + len(Y) ** 0.5)
        self.rounding = 4 * torch.finfo(L.dtype).eps * C * size  # no gradient can be told from none below this

    def start(self, warm: Tensor | None, values: Tensor | None) -> Tensor:
        """Zero, or the weights and intercepts of a similar problem by its beta and decision values."""
        x = self.L.new_zeros(self.L.shape[1] + 1, self.Y.shape[1])
        if warm is not None:
            x[:-1] = self.L.mT @ warm
            if values is not None:
                x[-1] = (values - self.L @ x[:-1]).mean(0)
        return x

    def evaluate(self, x: Tensor) -> tuple[float, Tensor, Tensor]:
        """The objective, its gradient, and the probabilities."""
        scores = self.L @ x[:-1] + x[-1]
        logs = scores.log_softmax(1)
        P = logs.exp()
        slope = self.C * self.mass * (P - self.Y)
        gradient = torch.cat([x[:-1] + self.L.mT @ slope, slope.sum(0, keepdim=True)])
        value = 0.5 * x[:-1].square().sum() - self.C * (self.mass * self.Y * logs).sum()
        return float(value), gradient, P

    def change(self, step: Tensor) -> float:
        """What a step does to decision values, at most."""
        scores = self.L @ step[:-1] + step[-1]
        return float((scores - scores.mean(1, keepdim=True)).abs().max())

    def times_hessian(self, P: Tensor, x: Tensor) -> Tensor:
        """The Hessian at probabilities P times x."""
        change = P * (self.L @ x[:-1] + x[-1])
        change = self.C * self.mass * (change - P * change.sum(1, keepdim=True))
        return torch.cat([x[:-1] + self.L.mT @ change, change.sum(0, keepdim=True)])

    def newton_step(self, P: Tensor, gradient: Tensor, accuracy: float) -> Tensor:
        """The solution of H x = -gradient by conjugate gradients; nearly diagonal in the eigenvectors of K."""
        curvature = self.C * (self.mass * P * (1 - P)).mean(0)  # (k,)
        scale = torch.cat([1 + self.spectrum[:, None] * curvature, len(P) * curvature.clamp(min=1e-12)[None]])

        def precondition(residual: Tensor) -> Tensor:
            result = residual / scale
            result[-1] -= result[-1].mean()  # adding to all intercepts alike changes nothing
            return result

        x, residual = torch.zeros_like(gradient), -gradient
        towards = precondition(residual)
        product, direction = float((residual * towards).sum()), towards
        goal = accuracy**2 * product
        for _ in range(500):
            image = self.times_hessian(P, direction)
            bend = float((direction * image).sum())
            if bend <= 0:  # rounding alone
                break
            x = x + (product / bend) * direction
            residual = residual - (product / bend) * image
            towards = precondition(residual)
            before, product = product, float((residual * towards).sum())
            if product <= goal:
                break
            direction = towards + (product / before) * direction
        return x

    def to_beta(self, x: Tensor) -> Tensor:
        """V = L^T beta, by L^T L = diag(spectrum)."""
        return (self.L / self.spectrum) @ x[:-1]


def _line_search(problem: _Problem, x: Tensor, value: float, gradient: Tensor, step: Tensor) -> Tensor:
    """Halve the step until the objective falls as it should, or by less than rounding shows."""
    slope, length = float((gradient * step).sum()), 1.0
    blur = 1e-14 * (abs(value) + problem.C * problem.total)
    for _ in range(30):
        tried = x + length * step
        if problem.evaluate(tried)[0] <= value + 1e-4 * length * slope + blur:
            return tried
        length /= 2
    return x + step
