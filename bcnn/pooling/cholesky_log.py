r"""The logarithm of the Cholesky factor: a cheap relative of the matrix logarithm.

.. math:: A + \epsilon I = L L^T, \qquad Z = \lfloor L \rfloor + \lfloor L \rfloor^T + 2 \log \mathrm{diag}(L)

with the strictly lower part of L: the coordinates of A in the log-Cholesky metric at I.

References: Lin, *Riemannian geometry of symmetric positive definite matrices via Cholesky decomposition*, 2019; Chen et
al. (RiemGCP), ICLR 2025, whose Cho-TMLR is a linear classifier after it (eps = 10^-6, absolute, in float64).

Legend: A symmetric positive definite matrices (..., d, d); L lower triangular with a positive diagonal.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..errors import NotPositiveDefiniteError
from ..linalg.autodiff import check_values, should_check
from ..linalg.operand import Factored, formed
from ..linalg.spectrum import widest
from ..parts.shapes import Shape, Spd, expect
from .contract import Normalization


def cholesky_log(A: Tensor | Factored) -> Tensor:
    """The strict part of the Cholesky factor twice, and twice the logarithm of its diagonal, in float64 inside.

    Args:
        A: symmetric positive definite matrices, shape (..., d, d); give the pooling a ridge.

    Raises:
        NotPositiveDefiniteError: A is singular, or not positive.

    Example:
        >>> cholesky_log(torch.tensor([[1.0, 3.0], [3.0, 10.0]]))
        tensor([[0., 3.],
                [3., 0.]])
    """
    matrix = formed(A)
    L, failed = torch.linalg.cholesky_ex(matrix.to(widest(matrix)))
    if should_check(None, matrix):
        check_values(_check_definite, failed)
    lower = L.tril(-1)
    logs = 2 * L.diagonal(dim1=-2, dim2=-1).log()
    result: Tensor = (lower + lower.mT + logs.diag_embed()).to(matrix.dtype)
    return result


def _check_definite(failed: Tensor) -> None:
    if (failed > 0).any():
        raise NotPositiveDefiniteError(
            f"cholesky_log: expected positive definite matrices, got {int((failed > 0).sum())} of {failed.numel()} "
            "that are not; give the pooling a ridge, as in bilinear(eps=0.001)."
        )


class CholeskyLog(Normalization):
    """The function `cholesky_log` as a part."""

    takes: ClassVar[str] = "spd"

    def shape(self, given: Shape) -> Spd:
        """The result is a symmetric matrix of the same size."""
        return expect("cholesky_log", Spd, given, "it follows bilinear or covariance pooling")

    def forward(self, A: Tensor | Factored) -> Tensor:
        """Apply it to symmetric matrices (..., d, d)."""
        return cholesky_log(A)
