r"""K = X X^T as the solvers see it: formed where descriptors are wide, kept as X where there are many rows.

`Formed` keeps the n x n numbers. `Thin` keeps X alone, so that nothing of size n x n is ever made: products cost two
with X, and systems are solved in its d columns by the identity of Woodbury,

.. math:: (X X^T + E)^{-1} = E^{-1} - E^{-1} X (I + X^T E^{-1} X)^{-1} X^T E^{-1}

Legend: X descriptors (n, d); K Gram matrix (n, n); E, D diagonals (n,); L a factor, K = L L^T.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import scipy.linalg.lapack
import torch
from torch import Tensor

MAX_FORMED = 2048  # rows, up to which the last resort of `Thin` is a matrix of all of them
FEW = {torch.float32: 16, torch.float64: 128}  # columns, up to which rows times the transpose are the faster product

Times = Callable[[Tensor], Tensor]  # what a matrix does to columns, (n, k)
Solve = Callable[[Tensor], Tensor]  # a linear system, factorised; the right side is one column, (n,)


class Kernel(ABC):
    """A Gram matrix, formed or not."""

    thin: bool

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def most_rank(self) -> int:
        """What the rank cannot exceed."""

    @abstractmethod
    def __matmul__(self, B: Tensor) -> Tensor:
        """K B for B of shape (n,) or (n, k)."""

    @abstractmethod
    def diagonal(self) -> Tensor:
        """Shape (n,)."""

    @abstractmethod
    def row_sums(self) -> Tensor:
        """Shape (n,)."""

    @abstractmethod
    def single(self) -> Kernel:
        """The same in float32, for what need not be exact."""

    @abstractmethod
    def among(self, rows: Tensor) -> Kernel:
        """K[rows][:, rows], the kernel of some samples."""

    @abstractmethod
    def across(self, rows: Tensor, columns: Tensor, B: Tensor) -> Tensor:
        """K[rows][:, columns] B, what samples get from others."""

    @abstractmethod
    def with_bias(self, unit: float, ridge: Tensor | None) -> Kernel:
        """(K + 1) / unit + diag(ridge); a ridge is one number, or one per row."""

    @abstractmethod
    def system(self, rows: Tensor) -> tuple[Times, Solve]:
        """K[rows][:, rows] as a product with one column, and its solution."""

    @abstractmethod
    def shifted_inverse(self, rho: float) -> Times:
        """(K + rho I)^-1 as a product."""

    @abstractmethod
    def shifted_solve(self, D: Tensor, L: Tensor | None) -> Solve:
        """Solves (K + diag(D)) x = right; `L` of `low_rank` may be used."""

    @abstractmethod
    def low_rank(self) -> Tensor | None:
        """L with K = L L^T to rounding, shape (n, r), if r is at most half of n."""

    @abstractmethod
    def spectral_factor(self) -> Tensor:
        """L with K = L L^T, its columns orthogonal; eigenvalues that are rounding left out."""


@dataclass(frozen=True)
class Formed(Kernel):
    """All n x n numbers."""

    K: Tensor
    thin = False

    def __len__(self) -> int:
        return len(self.K)

    @property
    def most_rank(self) -> int:
        return len(self.K)

    def __matmul__(self, B: Tensor) -> Tensor:
        return times(self.K, B)

    def diagonal(self) -> Tensor:
        return self.K.diagonal()

    def row_sums(self) -> Tensor:
        return self.K.sum(1)

    def single(self) -> Formed:
        return Formed(self.K.float())

    def among(self, rows: Tensor) -> Formed:
        return Formed(self.K[rows][:, rows])

    def across(self, rows: Tensor, columns: Tensor, B: Tensor) -> Tensor:
        return self.K[rows][:, columns] @ B

    def with_bias(self, unit: float, ridge: Tensor | None) -> Formed:
        scaled = (self.K + 1).div_(unit)
        if ridge is not None:
            scaled.diagonal().add_(ridge)
        return Formed(scaled)

    def system(self, rows: Tensor) -> tuple[Times, Solve]:
        block = self.K[rows][:, rows]
        return block.__matmul__, factorise(block)

    def shifted_inverse(self, rho: float) -> Times:
        shifted = self.K.clone()
        shifted.diagonal().add_(rho)
        return partial(times, _inverse(shifted))

    def shifted_solve(self, D: Tensor, L: Tensor | None) -> Solve:
        return factorise(self.K + torch.diag(D)) if L is None else solve_by_columns(L, D)

    def low_rank(self) -> Tensor | None:
        """By Cholesky with pivoting."""
        half = len(self.K) // 2 + 1
        factor, failed = torch.linalg.cholesky_ex(self.K[:half, :half])
        if not int(failed) and float(factor.diagonal().min()) > 1e-5:  # more than half already
            return None
        lower, pivots, rank, _ = scipy.linalg.lapack.dpstrf(self.K.numpy(), lower=1)
        if rank >= half:
            return None
        L = torch.zeros(len(self.K), int(rank), dtype=self.K.dtype)
        L[torch.from_numpy(pivots - 1).long()] = torch.from_numpy(lower[:, :rank]).tril()
        return L

    def spectral_factor(self) -> Tensor:
        spectrum, U = torch.linalg.eigh(self.K)
        kept = _kept(spectrum, len(self.K))
        L: Tensor = U[:, kept] * spectrum[kept].sqrt()
        return L


@dataclass(frozen=True)
class Thin(Kernel):
    """X X^T + diag(ridge), of which X and the ridge are kept."""

    X: Tensor
    ridge: Tensor | None = None  # (n,)
    thin = True

    def __len__(self) -> int:
        return len(self.X)

    @property
    def most_rank(self) -> int:
        return len(self.X) if self.ridge is not None else min(self.X.shape)

    def __matmul__(self, B: Tensor) -> Tensor:
        product = times(self.X, times(self.X.mT, B))
        if self.ridge is None:
            return product
        return product + (self.ridge * B if B.ndim == 1 else self.ridge[:, None] * B)

    def diagonal(self) -> Tensor:
        sizes = self.X.square().sum(1)
        return sizes if self.ridge is None else sizes + self.ridge

    def row_sums(self) -> Tensor:
        return self @ self.X.new_ones(len(self.X))

    def among(self, rows: Tensor) -> Thin:
        return Thin(self.X[rows], None if self.ridge is None else self.ridge[rows])

    def across(self, rows: Tensor, columns: Tensor, B: Tensor) -> Tensor:
        return self.X[rows] @ (self.X[columns].mT @ B)  # of different samples, which share no ridge

    def with_bias(self, unit: float, ridge: Tensor | None) -> Thin:
        X = torch.cat([self.X, self.X.new_ones(len(self.X), 1)], 1).div_(unit**0.5)
        return Thin(X, None if ridge is None else ridge.expand(len(X)).clone())

    def single(self) -> Thin:
        return Thin(self.X.float(), None if self.ridge is None else self.ridge.float())

    def system(self, rows: Tensor) -> tuple[Times, Solve]:
        own = self.among(rows)
        if len(rows) > self.X.shape[1]:
            return own.__matmul__, least_norm(own.X) if own.ridge is None else solve_by_columns(own.X, own.ridge)
        block = own.X @ own.X.mT
        if own.ridge is not None:
            block.diagonal().add_(own.ridge)
        return own.__matmul__, factorise(block)

    def shifted_inverse(self, rho: float) -> Times:
        """By one inverse of d x d, whatever n is."""
        if self.ridge is None:  # X is read where a scaled copy would have to be as well
            inner = self.X.mT @ self.X
            inner.diagonal().add_(rho)
            inverse = _inverse(inner)
            return lambda B: (B - times(self.X, times(inverse, times(self.X.mT, B)))).div_(rho)
        D = (self.ridge + rho)[:, None]
        scaled = self.X / D
        inner = self.X.mT @ scaled
        inner.diagonal().add_(1)
        inverse = _inverse(inner)
        return lambda B: B / D - times(scaled, times(inverse, times(scaled.mT, B)))

    def shifted_solve(self, D: Tensor, L: Tensor | None) -> Solve:
        """In the columns of X; without L, and of few rows, in the rows, where a wide range of D does less harm."""
        E = D if self.ridge is None else D + self.ridge
        if L is None and len(self.X) <= MAX_FORMED:
            return factorise(self.X @ self.X.mT + torch.diag(E))
        return solve_by_columns(self.X, E)

    def low_rank(self) -> Tensor | None:
        return self.X

    def spectral_factor(self) -> Tensor:
        spectrum, V = torch.linalg.eigh(self.X.mT @ self.X)
        L: Tensor = self.X @ V[:, _kept(spectrum, len(self.X))]
        return L


def times(M: Tensor, B: Tensor) -> Tensor:
    """``M B`` for B of shape (n,) or (n, k), the faster way round where columns are few."""
    if B.ndim == 1 or B.shape[1] > FEW[B.dtype]:
        return M @ B
    return (B.mT.contiguous() @ M.mT).mT.contiguous()


def as_kernel(K: Kernel | Tensor) -> Kernel:
    """A Gram matrix of shape (n, n) as a kernel."""
    return Formed(K) if isinstance(K, Tensor) else K


def solve_by_columns(L: Tensor, D: Tensor) -> Solve:
    """Solves (L L^T + diag(D)) x = right in the columns of L."""
    scaled = L / D[:, None]
    inner = L.mT @ scaled
    inner.diagonal().add_(1)
    solve = factorise(inner)
    return lambda right: (right - L @ solve(scaled.mT @ right)) / D


def least_norm(X: Tensor) -> Solve:
    """X X^T x = right for more rows than columns: the shortest x that comes nearest, (X X^T)^+ right."""
    solve = factorise(X.mT @ X)
    return lambda right: X @ solve(solve(X.mT @ right))


def factorise(K: Tensor) -> Solve:
    """Solves K x = right by Cholesky, K's diagonal raised just as much as rounding or repeated rows ask for."""
    scale = K.diagonal().clamp(min=torch.finfo(K.dtype).tiny).rsqrt()
    even = K * scale[:, None] * scale  # ones on the diagonal: neither large nor small entries rule the shift
    shift = 1e-15 * len(K)
    for _ in range(6):
        even.diagonal().fill_(1 + shift)
        factor, failed = torch.linalg.cholesky_ex(even)
        if not int(failed):
            break
        shift *= 100
    return lambda right: scale * torch.cholesky_solve((scale * right)[:, None], factor)[:, 0]


def _inverse(K: Tensor) -> Tensor:
    return torch.cholesky_inverse(torch.linalg.cholesky(K))


def _kept(spectrum: Tensor, n: int) -> Tensor:
    return spectrum > n * torch.finfo(spectrum.dtype).eps * spectrum[-1].clamp(min=1e-300)
