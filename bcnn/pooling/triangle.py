r"""Symmetric matrices as their upper triangle, off-diagonal entries times sqrt 2: half the size, equal inner products.

Legend: Z symmetric matrices (..., d, d); v their triangles (..., d (d + 1) / 2), row by row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor


def upper_triangle(Z: Tensor) -> Tensor:
    r"""The vector v with :math:`\langle v(Y), v(Z) \rangle = \langle Y, Z \rangle_F` for symmetric Y and Z.

    Args:
        Z: symmetric matrices, shape (..., d, d).

    Returns:
        Shape (..., d (d + 1) / 2).

    Example:
        >>> upper_triangle(torch.tensor([[1.0, 2.0], [2.0, 4.0]])).square().sum()
        tensor(25.)
    """
    if Z.ndim < 2 or Z.shape[-1] != Z.shape[-2]:
        raise ValueError(f"upper_triangle: expected matrices of shape (..., d, d), got {tuple(Z.shape)}.")
    return entries(Z) * multiplicity(Z.shape[-1], Z).sqrt()


def full_matrix(v: Tensor) -> Tensor:
    """Turn triangles `v` back into symmetric matrices: the inverse of `upper_triangle`.

    Example:
        >>> full_matrix(upper_triangle(torch.tensor([[1.0, 2.0], [2.0, 4.0]])))
        tensor([[1., 2.],
                [2., 4.]])
    """
    d = dimension_of(v.shape[-1])
    v = v / multiplicity(d, v).sqrt()
    rows, columns = torch.triu_indices(d, d, device=v.device)
    place = torch.empty(d, d, dtype=torch.long, device=v.device)
    place[rows, columns] = place[columns, rows] = torch.arange(len(rows), device=v.device)
    return v[..., place]


def dimension_of(length: int) -> int:
    """The number of rows d of a matrix whose triangle has d (d + 1) / 2 entries."""
    d = (math.isqrt(8 * length + 1) - 1) // 2
    if d * (d + 1) // 2 != length:
        raise ValueError(f"full_matrix: expected d (d + 1) / 2 entries for some d, got {length}.")
    return d


def entries(Z: Tensor) -> Tensor:
    """The entries on and above the diagonal, row by row, as they are: shape (..., d (d + 1) / 2)."""
    return Z.flatten(-2).index_select(-1, _kept(_places, Z.shape[-1], Z.device))


def multiplicity(d: int, like: Tensor) -> Tensor:
    """How often each of the `entries` stands in the matrix: 1 on the diagonal, 2 beside it."""
    return _kept(_multiplicity, d, like.dtype, like.device)


def _places(d: int, device: torch.device) -> Tensor:
    rows, columns = torch.triu_indices(d, d, device=device)
    return torch.add(rows * d, columns)


def _multiplicity(d: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    rows, columns = torch.triu_indices(d, d, device=device)
    return torch.where(rows == columns, 1, 2).to(dtype)


def _kept(make: Callable[..., Tensor], *arguments: Any) -> Tensor:
    """A constant, made once; anew where the compiler looks on."""
    return make(*arguments) if torch.compiler.is_compiling() else _made(make, *arguments)


@lru_cache(maxsize=16)
def _made(make: Callable[..., Tensor], *arguments: Any) -> Tensor:
    with torch.inference_mode(False):  # it will be used outside of inference mode, too
        return make(*arguments)
