r"""The square root of a matrix that is not formed, as another one that is not formed.

With :math:`G = X^T X + \rho I` of the locations and :math:`K = G^{1/2} + \sqrt\rho I = L L^T`,

.. math:: (X X^T + \rho I)^{1/2} = Y Y^T + \sqrt\rho I, \qquad Y = X L^{-T}

since every eigenvalue s of X^T X goes to :math:`\sqrt{s + \rho} - \sqrt\rho = s / (\sqrt{s + \rho} + \sqrt\rho)`. So
what works with the factor alone, such as a low-rank scorer, works with the root as well. No eigenvectors are divided:
the gradient is that of `sqrtm` and of a triangular solve, right for repeated eigenvalues, too.

Paper: Sec. 2.2 on the matrices of Sec. 2.1; MoNet (Gou et al., CVPR 2018) has the factor S^(1/2) V^T in this place.

Legend: X features in columns (..., d, n), divided by sqrt(n); rho the ridge; A = X X^T + rho I.
"""

from __future__ import annotations

import torch

from ..linalg.operand import Factored
from ..linalg.products import symmetric_product
from ..linalg.spectrum import widest
from .functions.sqrtm import sqrtm


def factored_sqrt(A: Factored) -> Factored:
    """``A^(1/2)`` by its factor Y, shape (..., d, n), and its ridge; differentiable.

    Valid: ridge > 0. Everything n x n is computed in float64, Y comes in the precision of X.
    Cost: products of 2 d n^2 operations, one n x n decomposition; worth it for fewer locations than channels.
    """
    if A.ridge is None:
        raise ValueError("factored_sqrt: expected a ridge > 0, got none; raise `eps`, or form A and call bcnn.sqrtm.")
    X = A.X.to(widest(A.X))
    ridge = A.ridge.to(X.dtype)[..., None, None]
    eye = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
    K = sqrtm(symmetric_product(X.mT, X) + ridge * eye) + ridge.sqrt() * eye
    L = torch.linalg.cholesky(K)
    Y = torch.linalg.solve_triangular(L, X.mT, upper=False).mT
    return Factored(Y.to(A.X.dtype), A.ridge.sqrt())
