"""Matrices to measure on: the spectra that decide whether a matrix function and its gradient can be trusted.

Paper: Sec. 3.2, "the maximum value of sigma_max is about 10^6 ... and we find that epsilon = 1 is sufficient".

Legend: X features (batch, d, n); A = X X^T / n + ridge I, shape (batch, d, d).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

TOP = 1e6  # the paper's largest eigenvalue
RIDGE = 1.0  # the paper's eps


def relu_like_features(batch: int, d: int, n: int, generator: torch.Generator) -> Tensor:
    """relu(W g - 0.8) with g Gaussian, columns of W falling as k^-0.75, rows of length 1, log-normal channel scales."""
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    W = normal(d, d) * torch.arange(1, d + 1, dtype=torch.float64) ** -0.75
    W = W / W.norm(dim=1, keepdim=True)
    scales = torch.exp(1.2 * normal(d, 1))
    return scales * torch.relu(W @ normal(batch, d, n) - 0.8)


def _pooled(batch: int, d: int, n: int, generator: torch.Generator) -> Tensor:
    X = relu_like_features(batch, d, n, generator)
    A = X @ X.mT / n
    A = A * (TOP / torch.linalg.eigvalsh(A)[..., -1, None, None].clamp_min(1e-30))
    return torch.add(A, RIDGE * torch.eye(d, dtype=A.dtype))


def paper(batch: int, d: int, generator: torch.Generator) -> Tensor:
    """N = 784 locations for d = 512 (448 px, relu5_3), largest eigenvalue 10^6, ridge 1."""
    return _pooled(batch, d, d * 784 // 512, generator)


def rank_deficient(batch: int, d: int, generator: torch.Generator) -> Tensor:
    """N = d / 2 locations: half the eigenvalues are the ridge itself."""
    return _pooled(batch, d, max(1, d // 2), generator)


def flat(batch: int, d: int, generator: torch.Generator) -> Tensor:
    """2 I, ridge I (a black image), and spectra of two repeated eigenvalues, in turn."""
    eye = torch.eye(d, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    steps = torch.where(torch.arange(d) < d // 2, 100.0, RIDGE).double()
    kinds = [2 * eye, RIDGE * eye, (Q * steps) @ Q.mT]
    return torch.stack([kinds[i % len(kinds)] for i in range(batch)])


REGIMES: dict[str, Callable[[int, int, torch.Generator], Tensor]] = {
    "paper": paper,
    "rank_deficient": rank_deficient,
    "flat": flat,
}
