r"""Random Maclaurin features: the other compact bilinear descriptor, of the pooled matrix or of any function of it.

.. math:: \phi(A)_j = \frac{1}{\sqrt D} \, w_j^T A \, v_j, \qquad w_j, v_j \in \{-1, +1\}^d

which is linear in A: for A = sum_i x_i x_i^T it is the sum over locations of (W x_i) * (V x_i), as Gao et al. write it.

References: Kar & Karnick, *Random feature maps for dot product kernels*, AISTATS 2012; Gao et al., *Compact bilinear
pooling*, CVPR 2016 (width 8192). Paper: the row CBP of Table 4.

Legend: X features in columns (..., d, n), divided by sqrt(n); A pooled matrix (..., d, e); W, V signs (D, d), (D, e).
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..linalg.autodiff import full_precision
from ..linalg.operand import Factored, formed
from ..matfun.thin_factor import Applied, columns_of, factors_of
from ..parts.shapes import Shape, Vector
from .contract import Normalization
from .tensor_sketch import DEFAULT_WIDTH, check_width, keep_signs, matrix_sides, random_signs


def random_maclaurin(A: Tensor | Factored | Applied, W: Tensor, V: Tensor) -> Tensor:
    """``w_j^T A v_j / sqrt(D)`` for every j.

    Cost: D d^2 operations from a matrix that is formed, 2 D d n from n locations; the smaller is taken.

    Args:
        A: shape (..., d, e), formed or not.
        W: shape (D, d).
        V: shape (D, e).

    Returns:
        Shape (..., D).
    """
    columns = columns_of(A)
    D, d = W.shape
    if columns is None or 2 * D * columns.shape[-1] > (D + columns.shape[-1]) * d:
        Z = formed(A)
        W, V = W.to(Z.dtype), V.to(Z.dtype)
        with full_precision(Z):
            sketch: Tensor = ((W @ Z) * V).sum(-1) * D**-0.5
        return sketch
    assert not isinstance(A, Tensor)
    X, M, c = factors_of(A)
    W, V = W.to(X.dtype), V.to(X.dtype)
    with full_precision(X):
        products = ((W @ X) * (V @ M)).sum(-1)
    if c is not None:
        products = products + c[..., None] * (W * V).sum(-1)
    result: Tensor = products * D**-0.5
    return result


class RandomMaclaurin(Normalization):
    """The compact bilinear descriptor by Random Maclaurin features, exactly that of the matrix before it.

    Inner products are those of the matrices in the mean over seeds, with a variance that falls as 1/width. Slower than
    the Tensor Sketch, and a little less exact.

    Args:
        width: the length of the descriptor, D.
        seed: of the signs, which are saved with the network.
        learn_signs: whether the signs are parameters, which fine-tuning turns into any weights.
    """

    takes: ClassVar[str] = "spd"
    takes_applied: ClassVar[bool] = True

    signs_1: Tensor
    signs_2: Tensor

    def __init__(
        self, inputs: tuple[Shape, ...], width: int = DEFAULT_WIDTH, *, seed: int = 0, learn_signs: bool = False
    ):
        super().__init__()
        sides = matrix_sides("random_maclaurin", inputs[0])
        self.width, self.seed, self.learn_signs = check_width("random_maclaurin", width), seed, learn_signs
        generator = torch.Generator().manual_seed(seed)
        for i, side in enumerate(sides, start=1):
            keep_signs(self, f"signs_{i}", random_signs(self.width, side, generator=generator), learn_signs)

    def shape(self, given: Shape) -> Vector:
        """The result has `width` numbers."""
        matrix_sides("random_maclaurin", given)
        return Vector(self.width)

    def forward(self, A: Tensor | Factored | Applied) -> Tensor:
        """Return the sketches, shape (..., width)."""
        return random_maclaurin(A, self.signs_1, self.signs_2)

    def extra_repr(self) -> str:
        """Show every option."""
        return f"width={self.width}, seed={self.seed}, learn_signs={self.learn_signs}"
