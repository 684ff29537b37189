"""Products of feature matrices that are wider than memory, by blocks of columns: every number is read once.

Legend: X descriptors, one row per image (n, d); K = X X^T, the Gram matrix (n, n).
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..machine import available_memory
from ..progress import Progress, silent
from .kernel import Formed, Kernel, Thin

BLOCK_BYTES = 64 * 2**20  # of one block of columns; two at most are in memory
SMALL = 2e9  # up to so many products float64 is not felt
THIN = 2  # so many times more rows than columns, and the Gram matrix is not formed
COPIES = 4  # of the Gram matrix, or of the descriptors, that solvers and folds hold at a time, in float64
COPIES_SCORES = 6  # of a number per row and class, in float64: multipliers, scores, and those of a fold
_ROWS_READ = 128  # of a memory map, before its pages are given back
_ROWS = 512  # rows of a tile of K: tiles below the diagonal are mirrored, not multiplied


class DescriptorMatrix(Protocol):
    """Descriptors that give blocks of their columns; `as_matrix` makes one of an array."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns start to stop of all rows, float32 or float64, shape (n, stop - start)."""
        ...


class ArrayMatrix:
    """A NumPy array (a memory map, too) or a tensor as a `DescriptorMatrix`."""

    def __init__(self, array: np.ndarray[Any, Any] | Tensor):
        if array.ndim != 2:
            raise ValueError(f"as_matrix: expected descriptors of shape (n, d), got {tuple(array.shape)}.")
        self.array = array
        self.shape = (int(array.shape[0]), int(array.shape[1]))

    def columns(self, start: int, stop: int) -> Tensor:
        """A block; halves and whole numbers become float32 and float64."""
        if isinstance(self.array, Tensor):
            name = str(self.array.dtype).removeprefix("torch.")
            return self.array[:, start:stop].detach().to("cpu", torch.float32 if _is_single(name) else torch.float64)
        block = np.empty((self.shape[0], stop - start), np.float32 if _is_single(self.array.dtype.name) else np.float64)
        for top in range(0, len(block), _ROWS_READ):
            block[top : top + _ROWS_READ] = self.array[top : top + _ROWS_READ, start:stop]
            _forget_pages(self.array)
        return torch.from_numpy(block)


def as_matrix(array: Any) -> DescriptorMatrix:
    """Descriptors as a `DescriptorMatrix`: arrays, memory maps, tensors; what has `columns` is returned as it is.

    Example:
        >>> as_matrix(np.eye(3)).columns(1, 3).shape
        torch.Size([3, 2])
    """
    if hasattr(array, "columns") and hasattr(array, "shape") and not isinstance(array, (np.ndarray, Tensor)):
        result: DescriptorMatrix = array
        return result
    return ArrayMatrix(array if isinstance(array, (np.ndarray, Tensor)) else np.asarray(array))


def row_blocks(matrix: DescriptorMatrix, num_bytes: int = BLOCK_BYTES) -> Iterator[tuple[int, Tensor]]:
    """Blocks of rows with the first row of each, float32, all finite: the whole once, nothing of it kept.

    What knows `parts`, rows a file at a time, is read file by file; an array is cut.
    """
    n, d = matrix.shape
    most = max(1, num_bytes // (4 * max(d, 1)))
    start = 0
    for block in _gathered(matrix, most):
        if not torch.isfinite(block.sum()) and not block.isfinite().all():  # a sum costs nothing, and may overflow
            wrong = (~block.isfinite()).any(1).nonzero()
            raise ValueError(
                f"descriptors: expected finite numbers, got others in row {start + int(wrong[0])}; the image or its "
                "descriptors are damaged: extract them again, or leave the row out."
            )
        yield start, block
        start += len(block)
    if start != n:
        raise ValueError(f"descriptors: expected {n} rows, got {start}; they changed while they were read.")


def _gathered(matrix: DescriptorMatrix, most: int) -> Iterator[Tensor]:
    if isinstance(matrix, ArrayMatrix):
        for top in range(0, matrix.shape[0], most):
            part = matrix.array[top : top + most]
            block = part.detach().cpu() if isinstance(part, Tensor) else torch.from_numpy(np.array(part))
            _forget_pages(matrix.array if isinstance(matrix.array, np.ndarray) else np.empty(0))
            yield block.float()
        return
    waiting: list[Tensor] = []
    for part in matrix.parts():  # type: ignore[attr-defined]  # `can_stream` has asked
        if waiting and sum(map(len, waiting)) + len(part) > most:
            yield torch.cat(waiting).float()
            waiting = []
        waiting.append(part)
    if waiting:
        yield torch.cat(waiting).float()


def can_stream(matrix: DescriptorMatrix) -> bool:
    """Whether rows can be read a block at a time."""
    return isinstance(matrix, ArrayMatrix) or hasattr(matrix, "parts")


def gram(matrix: DescriptorMatrix, progress: Progress = silent) -> Tensor:
    """K = X X^T in float64, shape (n, n), symmetric to the last bit.

    Float32 blocks are multiplied in float32 and summed in float64, unless the whole is small; float64 ones in float64.

    Raises: ValueError for descriptors that are not finite, with the row.
    """
    n, d = matrix.shape
    small = float(n) * n * d <= SMALL
    K = torch.zeros(n, n, dtype=torch.float64)
    for start, block in _blocks(matrix):
        block = block.double() if small else block
        for top in range(0, n, _ROWS):
            rows = slice(top, min(top + _ROWS, n))
            K[rows, top:] += block[rows] @ block[top:].mT
        progress("gram", start + block.shape[1], d)
    return K.triu_().add_(K.triu(1).mT)


def kernel_of(matrix: DescriptorMatrix, rows: Tensor, progress: Progress = silent, num_classes: int = 0) -> Kernel:
    """The kernel of some rows: the Gram matrix, or the descriptors themselves where rows are many and columns few.

    Raises: MemoryError, before anything is read, where neither fits into memory, or not with what solvers keep of so
        many classes.
    """
    n, d = matrix.shape
    thin = len(rows) > THIN * (d + 1)
    _check_memory(n, d, thin, num_classes)
    if not thin:
        K = gram(matrix, progress)
        return Formed(K if len(rows) == n else K[rows][:, rows])
    X = torch.empty(len(rows), d, dtype=torch.float64)
    for start, block in _blocks(matrix):
        X[:, start : start + block.shape[1]] = block[rows]
        progress("gram", start + block.shape[1], d)
    return Thin(X)


def bytes_kept(n: int, d: int, num_classes: int = 0) -> float:
    """What solvers and folds hold at a time, of the Gram matrix or of the descriptors, and of scores."""
    return 8.0 * n * (COPIES * (d if n > THIN * (d + 1) else n) + COPIES_SCORES * num_classes)


def _check_memory(n: int, d: int, thin: bool, num_classes: int) -> None:
    free = available_memory()
    need = bytes_kept(n, d, num_classes)
    if free is None or need <= free:
        return
    what = f"{n} rows of {d} numbers" if thin else f"the {n} x {n} products of {n} rows with each other"
    what += f", and scores of {num_classes} classes" if num_classes else ""
    remedy = "fewer images" if thin else f"fewer images, --no-flips, or descriptors of fewer than {n // THIN} numbers"
    raise MemoryError(
        f"classifier: expected {need / 1e9:.1f} GB of free memory for {what}, got {free / 1e9:.1f} GB; take {remedy}"
        " (--proj-dim, or --pooling tensor_sketch), or a machine with more memory."
    )


def scores(matrix: DescriptorMatrix, weight: Tensor, bias: Tensor) -> Tensor:
    """X W^T + b in float64, shape (n, k), for `weight` (k, d) and `bias` (k,)."""
    n, d = matrix.shape
    if weight.ndim != 2 or weight.shape[1] != d:
        raise ValueError(
            f"scores: expected descriptors of {weight.shape[-1]} columns, as at training, got {d}; "
            "describe images by the same network and head."
        )
    result = bias.double().expand(n, -1).clone()
    for start, block in _blocks(matrix):
        result += block @ weight[:, start : start + block.shape[1]].to(block.dtype).mT
    return result


def combine(matrix: DescriptorMatrix, beta: Tensor, progress: Progress = silent) -> Tensor:
    """W = beta^T X in float64 products, rounded to float32, shape (k, d); beta is (n, k)."""
    d = matrix.shape[1]
    weight = torch.empty(beta.shape[1], d)
    turned = beta.double().mT.contiguous()
    for start, block in _blocks(matrix, itemsize=12):  # the block and its float64 copy
        weight[:, start : start + block.shape[1]] = (turned @ block.double()).float()
        progress("weights", start + block.shape[1], d)
    return weight


def _blocks(matrix: DescriptorMatrix, itemsize: int = 4) -> Iterator[tuple[int, Tensor]]:
    """Blocks of columns with the first column of each; all finite."""
    n, d = matrix.shape
    width = max(16, BLOCK_BYTES // (itemsize * max(n, 1)) // 16 * 16)
    for start in range(0, d, width):
        block = matrix.columns(start, min(start + width, d))
        if not torch.isfinite(block.sum()) and not block.isfinite().all():  # a sum costs nothing, and may overflow
            row = int((~block.isfinite()).any(1).nonzero()[0])
            column = start + int((~block[row].isfinite()).nonzero()[0])
            raise ValueError(
                f"descriptors: expected finite numbers, got {block[row, column - start].item()} in row {row}, column "
                f"{column}; the image or its descriptors are damaged: extract them again, or leave the row out."
            )
        yield start, block


def _is_single(name: str) -> bool:
    return name in ("float32", "float16", "bfloat16")


def _forget_pages(array: np.ndarray[Any, Any]) -> None:
    """Give back the pages of a memory map that is only read; they stay in the system's cache, not in this process."""
    pages = getattr(array, "_mmap", None)
    if pages is not None and getattr(array, "mode", "") == "r" and hasattr(mmap, "MADV_DONTNEED"):
        pages.madvise(mmap.MADV_DONTNEED)
