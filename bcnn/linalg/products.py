"""Products of symmetric matrices whose result is symmetric, and polynomials of a matrix.

Legend: X (..., d, n) and Y (..., n, d) with X Y symmetric; M any square matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

NUM_BLOCKS = 4
MIN_DIM_BLOCKED = 256


def symmetric_product(X: Tensor, Y: Tensor) -> Tensor:
    """``X @ Y`` where the result is known to be symmetric.

    For products such as U K U^T and polynomials of one matrix; not where two iterates meet (`newton_schulz`).

    Cost: of 4 x 4 blocks the 10 on and above the diagonal are computed, the others mirrored: 5/8 of a product's
    operations. A small matrix, a graph that autograd or the compiler records, and a single matrix (measured: no
    gain) take the plain product.
    """
    d = X.shape[-2]
    recorded = torch.is_grad_enabled() and (X.requires_grad or Y.requires_grad)
    if d < MIN_DIM_BLOCKED or recorded or torch.compiler.is_compiling():
        return X @ Y
    batch = common_batch(X.shape[:-2], Y.shape[:-2])
    if batch.numel() < 2:
        return X @ Y
    edges = [d * i // NUM_BLOCKS for i in range(NUM_BLOCKS + 1)]
    product = X.new_empty(*batch, d, d)
    for start, stop in pairwise(edges):
        panel = X[..., start:stop, :] @ Y[..., :, start:]  # (..., stop - start, d - start)
        product[..., start:stop, start:] = panel
        product[..., stop:, start:stop] = panel[..., :, stop - start :].mT
    return product


def common_batch(first: torch.Size, second: torch.Size) -> torch.Size:
    """`torch.broadcast_shapes`, which loads SymPy (a second) even where there is nothing to do."""
    return first if first == second else torch.broadcast_shapes(first, second)


def polynomial(coefficients: Sequence[float], M: Tensor, *, symmetric: bool = False) -> Tensor:
    """``c_0 I + c_1 M + c_2 M^2 + ...`` by Horner's rule; len(coefficients) - 2 products, `symmetric` if M is."""
    product = symmetric_product if symmetric else torch.matmul
    *rest, last = coefficients
    total = add_to_diagonal(last * M, rest[-1])
    for c in reversed(rest[:-1]):
        total = add_to_diagonal(product(total, M), c)
    return total


def add_to_diagonal(M: Tensor, value: float) -> Tensor:
    """``M + value I``, in place: for a tensor that the caller has just made."""
    M.diagonal(dim1=-2, dim2=-1).add_(value)
    return M
