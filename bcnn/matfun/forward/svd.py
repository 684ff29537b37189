r"""Any matrix function by the singular value decomposition, as the paper computes it.

Legend: A symmetric matrices (..., d, d); U, sigma singular vectors and (signed) singular values of A.
"""

from __future__ import annotations

from torch import Tensor

from ...linalg import spectrum
from ..contract import ForwardState, SpectralFunction
from .eigen import spectral


def svd(A: Tensor, f: SpectralFunction, *, precision: str = "high", tolerance: float | None = None) -> ForwardState:
    r"""``f(A) = U g(Sigma) U^T`` by the SVD ``A = U Sigma U^T``.

    Paper: Sec. 2.2; the column "SVD" of Table 3.
    Valid: any spectrum; slower than `eigen` and no more accurate: kept to compare.
    Cost: one SVD and one product.

    Args:
        precision: as in `eigen`.
        tolerance: as in `eigen`.
    """
    return spectral(A, f, spectrum.svd, precision=precision, tolerance=tolerance)
