r"""One-vs-rest linear SVMs over descriptors that are read a block of rows at a time: more of them than memory holds.

The alternating direction method of `admm`, written in the weights. With V = Y + rho (Z - U) each step is a ridge
regression of all classes at once,

.. math:: (X^T X + \rho I)\, \Delta w = X^T (V - X w) - \rho w

followed by bounds that every sample keeps for itself. One pass over the descriptors serves all classes: a product for
the decision values, one for the next right side. In memory are a d x d matrix, one number per sample and class, and a
block. What is summed up is the residual at the present weights, so that neither float32 nor the inverse limits them.

Legend: X descriptors with a one for the bias (n, d + 1), divided by the root of their mean squared length; Y = +-1
(n, k); S = Z + U (n, k), Z the multipliers within their bounds, U their scaled multipliers; w weights (d + 1, k);
M = (X^T X + rho I)^-1; F = X w.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg.lapack
import torch
from torch import Tensor

from ..progress import Progress, silent
from .admm import RELAX, RETUNE, RHO
from .gram import DescriptorMatrix, row_blocks

TOL = 1e-4  # of decision values
NUM_PROBES = 1024  # samples whose decision values tell how far they still move
RETUNE_EVERY = 20
_TILE = 1024  # columns of a tile of X^T X: those below the diagonal are mirrored


@dataclass(frozen=True)
class Streamed:
    """Weights of all classes, and how good they are."""

    weight: Tensor  # (k, d) float32
    bias: Tensor  # (k,) float32
    gap: float  # the largest duality gap of a class, by float32 sums
    error: float  # by which decision values may still move, by how fast they have moved
    num_iters: int  # passes over the descriptors
    converged: bool


class StreamedSVM:
    """All one-vs-rest problems of descriptors on disk; `solve` may be called again with other samples held out.

    Args:
        matrix: descriptors (n, d).
        labels: whole numbers below `num_classes`, shape (n,).
        num_classes: k; two classes are solved as two mirrored problems.
        counted: which samples count at all, shape (n,) of bools.
        C: weight of the losses.
        squared: squared hinge instead of hinge.
        sample_weight: what multiplies the losses, shape (n,); None: all are 1.
        progress: hears of "gram" and, in `solve`, of "train".
    """

    def __init__(
        self,
        matrix: DescriptorMatrix,
        labels: Tensor,
        num_classes: int,
        *,
        counted: Tensor,
        C: float = 1.0,
        squared: bool = False,
        sample_weight: Tensor | None = None,
        progress: Progress = silent,
    ):
        self.matrix, self.labels, self.num_classes, self.progress = matrix, labels, num_classes, progress
        self.squared = squared
        self.seen = counted.clone()
        self.unit = 1.0
        self.G = self._gram(counted)
        self.unit = float(self.G.diagonal().sum()) / int(counted.sum())
        mass = torch.ones(len(labels)) if sample_weight is None else sample_weight.float()
        self.C = (C * self.unit * mass)[:, None]  # (n, 1)
        self.G /= self.unit
        self.rho = max(RHO * _top(self.G) ** 0.5, 0.0 if squared else 1 / float(self.C[counted].max()))
        self.M = self._inverse()
        self.S = torch.zeros(len(labels), num_classes)
        self.w = torch.zeros(matrix.shape[1] + 1, num_classes)
        probed = counted.nonzero()[:, 0]
        self.probed = probed[:: max(1, len(probed) // NUM_PROBES)]
        self.probes = self._rows(self.probed)

    def solve(self, *, tol: float = TOL, max_iters: int = 1000) -> Streamed:
        """Go on from where the last call ended, until decision values are right to about `tol`."""
        sums = self._first_sums()
        before, moves, error, num_iters = self.probes @ self.w, list[float](), float("inf"), 0
        while error > tol / 2 and num_iters < max_iters:
            num_iters += 1
            self.w += self.M @ (sums - self.rho * self.w.double()).float()
            now = self.probes @ self.w
            moves.append(float((now - before).abs().max()))
            before = now
            error, left = _forecast(moves, tol / 2)
            self.progress("train", num_iters, num_iters + left, f"decision values right to {error:.0e}")
            sums = self._pass(num_iters % RETUNE_EVERY == 0)
        weight, bias = self.weights()
        return Streamed(weight, bias, self._gap(), error, num_iters, error <= tol)

    def weights(self) -> tuple[Tensor, Tensor]:
        """Of the descriptors as they are: weights (k, d) and biases (k,)."""
        scaled = self.w / self.unit**0.5
        return scaled[:-1].mT.contiguous(), scaled[-1].clone()

    def hold_out(self, rows: Tensor) -> None:
        """Leave out some samples, bools of shape (n,), that were in until now; multipliers of the others stay."""
        self.G -= self._gram(rows & self.seen)
        self.seen = self.seen & ~rows
        self.M = self._inverse()

    def scores(self, rows: Tensor) -> Tensor:
        """Decision values of the samples that `rows`, bools of shape (n,), selects, float32."""
        return torch.cat([X @ self.w for _, X in self._blocks(rows)])

    # --- one pass -----------------------------------------------------------------------------------------------------

    def _bounds(self, at: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor | float]:
        """Y, the lower and upper bound of multipliers, and how much a squared hinge shrinks them, of some samples."""
        Y = torch.full((len(at), self.num_classes), -1.0)
        Y[torch.arange(len(at)), self.labels[at]] = 1.0
        C = self.C[at]
        most = torch.full_like(C, torch.inf) if self.squared else C
        shrink = self.rho / (self.rho + 1 / (2 * C)) if self.squared else 1.0
        return Y, torch.where(Y < 0, -most, 0.0), torch.where(Y > 0, most, 0.0), shrink

    def _first_sums(self) -> Tensor:
        """X^T (V - X w) as things stand."""
        sums = torch.zeros(self.w.shape, dtype=torch.float64)
        for at, X in self._blocks(self.seen):
            Y, low, high, shrink = self._bounds(at)
            Z = (self.S[at] * shrink).clamp(low, high)
            sums += X.mT @ (Y + self.rho * (2 * Z - self.S[at]) - X @ self.w)
        return sums

    def _pass(self, may_retune: bool) -> Tensor:
        """One step of every sample's multipliers; returns the sums for the weights' next one."""
        sums = torch.zeros(self.w.shape, dtype=torch.float64)
        apart = moved = held = size = 0.0
        for at, X in self._blocks(self.seen):
            Y, low, high, shrink = self._bounds(at)
            S, F = self.S[at], X @ self.w
            Z = (S * shrink).clamp(low, high)
            B = (Y + self.rho * (2 * Z - S) - F) / self.rho
            S += RELAX * (B - Z)
            new = (S * shrink).clamp(low, high)
            self.S[at] = S
            sums += X.mT @ (Y + self.rho * (2 * new - S) - F)
            if may_retune:
                apart, moved = apart + float((B - new).square().sum()), moved + float((new - Z).square().sum())
                held, size = held + float((S - new).square().sum()), size + float(new.square().sum())
        if may_retune and min(apart, moved, held, size) > 0 and self._retune(apart / size, moved / held):
            return self._first_sums()
        return sums

    def _retune(self, primal: float, slope: float) -> bool:
        """As in `admm`: another rho if multipliers and gradients are far from balanced."""
        factor = min(max((primal / slope) ** 0.25, 1e-2), 1e2)
        if 1 / RETUNE < factor < RETUNE:
            return False
        everything = torch.ones_like(self.seen)
        for at in everything.nonzero()[:, 0].split(4096):
            _, low, high, shrink = self._bounds(at)
            Z = (self.S[at] * shrink).clamp(low, high)
            self.S[at] = Z + (self.S[at] - Z) / factor
        self.rho *= factor
        self.M = self._inverse()
        return True

    def _gap(self) -> float:
        """Primal objective at w minus dual objective at Z, the largest of all classes."""
        primal, dual = 0.5 * self.w.double().square().sum(0), torch.zeros(self.num_classes, dtype=torch.float64)
        combined = torch.zeros(self.w.shape, dtype=torch.float64)
        for at, X in self._blocks(self.seen):
            Y, low, high, shrink = self._bounds(at)
            Z = (self.S[at] * shrink).clamp(low, high)
            loss = (1 - Y * (X @ self.w)).clamp(min=0)
            primal += (self.C[at] * (loss.square() if self.squared else loss)).double().sum(0)
            dual += (Y * Z - (Z.square() / (4 * self.C[at]) if self.squared else 0)).double().sum(0)
            combined += X.mT @ Z
        return max(0.0, float((primal - dual + 0.5 * combined.square().sum(0)).max()) / self.unit)  # rounding alone

    # --- reading ------------------------------------------------------------------------------------------------------

    def _blocks(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Numbers of samples, and their scaled descriptors with a one for the bias, float32."""
        for start, block in row_blocks(self.matrix):
            own = rows[start : start + len(block)].nonzero()[:, 0]
            if len(own):
                X = torch.ones(len(own), block.shape[1] + 1)
                X[:, :-1] = block if len(own) == len(block) else block[own]
                yield start + own, X.mul_(self.unit**-0.5)

    def _rows(self, chosen: Tensor) -> Tensor:
        wanted = torch.zeros(len(self.labels), dtype=torch.bool)
        wanted[chosen] = True
        return torch.cat([X for _, X in self._blocks(wanted)])

    def _gram(self, rows: Tensor) -> Tensor:
        """X^T X of some samples, float64: products of blocks in float32, their sum in float64."""
        d = self.matrix.shape[1] + 1
        G, done, total = torch.zeros(d, d, dtype=torch.float64), 0, int(rows.sum())
        for at, X in self._blocks(rows):
            for top in range(0, d, _TILE):
                G[top : top + _TILE, top:] += X[:, top : top + _TILE].mT @ X[:, top:]
            done += len(at)
            self.progress("gram", done, total)
        for top in range(0, d, _TILE):
            G[top + _TILE :, top : top + _TILE] = G[top : top + _TILE, top + _TILE :].mT
        return G

    def _inverse(self) -> Tensor:
        """(G + rho I)^-1, float32; in the memory of one copy of G."""
        work = self.G.clone()
        work.diagonal().add_(self.rho)
        factor, failed = scipy.linalg.lapack.dpotrf(work.numpy().T, lower=0, clean=0, overwrite_a=1)
        if failed:
            raise ArithmeticError(
                f"StreamedSVM: expected descriptors of about one length, got products that float64 cannot "
                f"factorise (column {failed}); scale the descriptors to length 1."
            )
        inverse, _ = scipy.linalg.lapack.dpotri(factor, lower=0, overwrite_c=1)
        M = torch.from_numpy(np.asarray(inverse)).float().triu_()
        return M + M.triu(1).mT


def _top(G: Tensor) -> float:
    """The largest eigenvalue, nearly, by ten products."""
    x = G.sum(1)
    for _ in range(10):
        x = G @ (x / x.norm().clamp(min=1e-300))
    return float(x.norm())


def _forecast(moves: list[float], tol: float) -> tuple[float, int]:
    """How far decision values still are from where they go, by how fast their steps shrink, and how many more it takes.

    Example:
        >>> [round(x, 3) for x in _forecast([0.5**i for i in range(12)], 1e-4)]
        [0.0, 3]
    """
    if len(moves) < 6:
        return float("inf"), 50
    span = min(10, len(moves) - 1)
    rate = min(max((moves[-1] / max(moves[-1 - span], 1e-30)) ** (1 / span), 0.1), 0.995)
    error = moves[-1] * rate / (1 - rate)
    return error, max(0, int(np.ceil(np.log(max(error, 1e-30) / tol) / -np.log(rate)))) if error > tol else 0
