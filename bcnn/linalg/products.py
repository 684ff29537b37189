"""Products of symmetric matrices whose result is symmetric, and polynomials of a matrix.

Legend: X (..., d, n) and Y (..., n, d) with X Y symmetric; M any square matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from .autodiff import apply, full_precision, may_be_replayed_coarsely

NUM_BLOCKS = 4
# The least size that loses nowhere, with AVX2 or AVX-512, one thread or two, 2 to 32 matrices: 0.80 to 1.03 of a plain
# product at 384, 0.85 to 1.46 at 256, 0.77 to 0.96 at 512 (benchmarks/symmetric_product.py).
MIN_DIM_BLOCKED = 384


def symmetric_product(X: Tensor, Y: Tensor) -> Tensor:
    """``X @ Y`` where the result is known to be symmetric.

    For products such as U K U^T and polynomials of one matrix; not where two iterates meet (`newton_schulz`).

    Cost: of 4 x 4 blocks the 10 on and above the diagonal are computed, the others mirrored: 5/8 of a product's
    operations. A small matrix, a graph that autograd or the compiler records, and a single matrix (measured: no
    gain) take the plain product.
    """
    d = X.shape[-2]
    if d < MIN_DIM_BLOCKED or torch.compiler.is_compiling() or _is_recorded(X, Y):
        return product(X, Y)
    batch = common_batch(X.shape[:-2], Y.shape[:-2])
    if batch.numel() < 2:
        return X @ Y
    edges = [d * i // NUM_BLOCKS for i in range(NUM_BLOCKS + 1)]
    result = X.new_empty(*batch, d, d)
    for start, stop in pairwise(edges):
        panel = X[..., start:stop, :] @ Y[..., :, start:]  # (..., stop - start, d - start)
        result[..., start:stop, start:] = panel
        result[..., stop:, start:stop] = panel[..., :, stop - start :].mT
    return result


def product(X: Tensor, Y: Tensor) -> Tensor:
    """``X @ Y``, the products of its derivatives in full precision as well, whenever autograd comes to them."""
    if torch.compiler.is_compiling() or not may_be_replayed_coarsely(X) or not _is_recorded(X, Y):
        return X @ Y
    result: Tensor = apply(_Product, X, Y)
    return result


def _is_recorded(X: Tensor, Y: Tensor) -> bool:
    return torch.is_grad_enabled() and (X.requires_grad or Y.requires_grad)


class _Product(torch.autograd.Function):
    """A product of two batches of the same shape that stays in full precision backwards, to every order."""

    generate_vmap_rule = True

    @staticmethod
    def forward(X: Tensor, Y: Tensor) -> Tensor:
        with full_precision(X):
            return X @ Y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        X, Y = ctx.saved_tensors
        grad_X = apply(_Product, grad, Y.mT) if ctx.needs_input_grad[0] else None
        grad_Y = apply(_Product, X.mT, grad) if ctx.needs_input_grad[1] else None
        return grad_X, grad_Y

    @staticmethod
    def jvp(ctx: Any, dX: Tensor | None, dY: Tensor | None) -> Tensor:
        X, Y = ctx.saved_tensors
        parts = [apply(_Product, *pair) for pair in ((dX, Y), (X, dY)) if pair[0] is not None and pair[1] is not None]
        total: Tensor = sum(parts[1:], parts[0])
        return total


def common_batch(first: torch.Size, second: torch.Size) -> torch.Size:
    """`torch.broadcast_shapes`, which loads SymPy (a second) even where there is nothing to do."""
    return first if first == second else torch.broadcast_shapes(first, second)


def polynomial(coefficients: Sequence[float], M: Tensor, *, symmetric: bool = False) -> Tensor:
    """``c_0 I + c_1 M + c_2 M^2 + ...`` by Horner's rule; len(coefficients) - 2 products, `symmetric` if M is."""
    times = symmetric_product if symmetric else product
    *rest, last = coefficients
    total = add_to_diagonal(last * M, rest[-1])
    for c in reversed(rest[:-1]):
        total = add_to_diagonal(times(total, M), c)
    return total


def add_to_diagonal(M: Tensor, value: float | Tensor) -> Tensor:
    """``M + value I``, in place: for a tensor that the caller has just made; `value` is a number or (..., 1).

    Where a graph is recorded for other programs, nothing is changed in place: ONNX has no such operation.
    """
    if torch.compiler.is_compiling():
        eye = torch.eye(M.shape[-1], dtype=M.dtype, device=M.device)
        return M + (value[..., None] if isinstance(value, Tensor) else value) * eye
    M.diagonal(dim1=-2, dim2=-1).add_(value)
    return M
