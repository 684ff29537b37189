"""Eigendecompositions of the stored matrices, made once for all heads that begin with a matrix function.

A ridge moves the eigenvalues and leaves the eigenvectors alone, so that one decomposition serves every ridge, every
exponent and the logarithm: of the twenty heads of Table 1 and Figure 2 only the first one pays for it.

Legend: A stored matrices (rows, d, d); U, sigma their eigenvectors and eigenvalues.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from ..descriptors.folder import DescriptorRows
from ..files import read_tensors, write_tensors
from ..linalg.operand import Decomposed
from ..linalg.spectrum import eigh, widest
from ..matfun.modules import MatrixFunction
from ..pooling.bilinear import BilinearPool
from ..pooling.head import Head
from ..pooling.triangle import full_matrix
from ..progress import Progress

SPARE = 2  # of the free space, the share that decompositions may take at most, as a divisor


def serve(head: Head) -> bool:
    """Whether descriptors of this head can be made from eigenvectors and eigenvalues."""
    first, *others = head.normalizations or [None]
    if not isinstance(head.pooling, BilinearPool) or not isinstance(first, MatrixFunction):
        return False
    return first.left_open and not any(getattr(module, "takes_applied", False) for module in others)


def fit_on_disk(folder: Path, rows: DescriptorRows, dim: int) -> bool:
    """Whether there is room for the decompositions of all rows, or they are there already."""
    need = 4 * rows.shape[0] * dim * (dim + 2)
    parent = next(path for path in (folder, *folder.parents) if path.exists())
    return all(_path(folder, rows, i).exists() for i in range(rows.num_parts)) or (
        SPARE * need < shutil.disk_usage(parent).free
    )


def spectra(folder: Path, rows: DescriptorRows, progress: Progress, stage: str) -> Iterator[Decomposed]:
    """U in float32 and sigma in float64, in the order of the rows; what is on disk already is read, the rest is added.

    Args:
        folder: for one file per file of rows.
        rows: triangles of the stored matrices.
        progress: hears how far the decompositions are.
        stage: what they are called there.
    """
    missing = [i for i in range(rows.num_parts) if not _path(folder, rows, i).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        for i, triangles in enumerate(rows.parts()):
            if i in missing:
                _write(_path(folder, rows, i), full_matrix(triangles))
            progress(stage, i + 1, rows.num_parts)
    for i in range(rows.num_parts):
        stored, _ = read_tensors(_path(folder, rows, i))
        yield Decomposed(stored["U"], stored["sigma"])


@torch.inference_mode()
def describe(head: Head, stored: Decomposed) -> Tensor:
    """What the head would have made of the features themselves, shape (rows, length); for heads that `serve` accepts.

    Args:
        head: bilinear pooling, a matrix function, and more.
        stored: A without a ridge, decomposed.
    """
    assert isinstance(head.pooling, BilinearPool)
    return head.normalize_decomposed(head.pooling.complete_decomposed(stored))


def _path(folder: Path, rows: DescriptorRows, part: int) -> Path:
    return folder / f"{rows.split}-{part:05d}.safetensors"


def decompose(A: Tensor) -> Decomposed:
    """Eigenvectors in the precision of A, of a decomposition in float64, and eigenvalues."""
    sigma, U = eigh(A.to(widest(A)))
    return Decomposed(U.to(A.dtype), sigma)


def _write(path: Path, A: Tensor) -> None:
    own = decompose(A)
    write_tensors(
        path, {"U": own.U.contiguous(), "sigma": own.sigma.contiguous()}, {}, who="reproduce",
        remedy="Make room and give the same command again, it goes on from there.",
    )  # fmt: skip
