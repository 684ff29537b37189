r"""Tensor Sketch: the compact bilinear descriptor, of the pooled matrix or of any function of it.

The sketch is linear in the matrix: with two hashes h and k of channels to places and signs s and t,

.. math:: \phi(A)_j = \sum_{h(a) + k(b) \equiv j \bmod D} s_a t_b A_{ab}

so that :math:`\phi(\sum_i x_i x_i^T) = \sum_i \phi(x_i x_i^T)`, which is the sum over locations of Gao et al., and
:math:`\phi(A^{1/2}) = \sum_i \phi(y_i y_i^T)` over the rows y_i of S^(1/2) V^T, which is MoNet. Both follow from one
part: it comes after bilinear pooling, or after any matrix function of it, exactly.

References: Pham & Pagh, *Fast and scalable polynomial kernels via explicit feature maps*, KDD 2013; Gao et al.,
*Compact bilinear pooling*, CVPR 2016 (width 8192, sums over locations at 448 pixels, then signed square root and l2);
Gou et al., *MoNet*, CVPR 2018. Paper: the row CBP of Table 4.

Legend: X features in columns (..., d, n), divided by sqrt(n); A pooled matrix (..., d, e); D width of the sketch.
"""

from __future__ import annotations

import math
from numbers import Integral
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..linalg.operand import Factored, formed
from ..matfun.thin_factor import Applied, columns_of, factors_of
from ..parts.shapes import Matrix, Shape, Spd, Vector
from .contract import Normalization

DEFAULT_WIDTH = 8192

# Cost of a location through the FFT, D log2 D, next to that of an entry of A formed and added to its place, in these
# units, on a CPU (benchmarks/sketch_ways.py).
_FFT, _FORM, _PLACE = 40, 1, 150


def count_sketch(x: Tensor, places: Tensor, signs: Tensor, width: int) -> Tensor:
    r"""``C_j = sum of s_a x_a over the channels a with h(a) = j``.

    Args:
        x: vectors, shape (..., d).
        places: h, the place of every channel, shape (d,).
        signs: s, shape (d,).
        width: how many places there are.

    Returns:
        Shape (..., width).
    """
    signed = x * signs.to(x.dtype)
    zeros = x.new_zeros(*x.shape[:-1], width)
    return zeros.scatter_add(-1, places.expand(signed.shape), signed)


def tensor_sketch(A: Tensor, places: tuple[Tensor, Tensor], signs: tuple[Tensor, Tensor], width: int) -> Tensor:
    r"""The sketch of matrices that are formed, entry by entry.

    Cost: one addition per entry; the FFT of a location costs as much as forming its outer product for d = 1000 or so.

    Args:
        A: shape (..., d, e).
        places: h of the rows (d,) and of the columns (e,).
        signs: likewise.
        width: D.

    Returns:
        Shape (..., D).

    Example:
        >>> A = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
        >>> places, signs = (torch.tensor([0, 1]), torch.tensor([0, 2])), (torch.ones(2), torch.tensor([1.0, -1.0]))
        >>> tensor_sketch(A, places, signs, 3)
        tensor([-3.,  3., -2.])
    """
    place = ((places[0][:, None] + places[1]) % width).flatten()
    sign = (signs[0][:, None] * signs[1]).flatten()
    return count_sketch(A.flatten(-2), place, sign, width)


def tensor_sketch_of_columns(
    X: Tensor, Y: Tensor, places: tuple[Tensor, Tensor], signs: tuple[Tensor, Tensor], width: int
) -> Tensor:
    r"""The sketch of X Y^T, which is not formed: the product of count sketches in the Fourier domain.

    .. math:: \phi = \mathrm{FFT}^{-1} \sum_i \mathrm{FFT}(C_1 x_i) \odot \mathrm{FFT}(C_2 y_i)

    Args:
        X: features in columns, shape (..., d, n).
        Y: likewise, (..., e, n).
        places: h of the channels of X (d,) and of Y (e,).
        signs: likewise.
        width: D.

    Returns:
        Shape (..., D).
    """
    first, second = (
        fourier(count_sketch(own.mT, h, s, width)) for own, h, s in zip((X, Y), places, signs, strict=True)
    )
    return inverse_fourier((first * second).sum(-2), width)


def fourier(x: Tensor) -> Tensor:
    """`torch.fft.rfft` over the last dimension, of no vectors as well."""
    return torch.fft.rfft(x) if x.numel() else x.new_zeros(*x.shape[:-1], x.shape[-1] // 2 + 1) + 0j


def inverse_fourier(x: Tensor, width: int) -> Tensor:
    """`torch.fft.irfft` to vectors of `width` numbers, of none as well."""
    return torch.fft.irfft(x, n=width) if x.numel() else x.real.new_zeros(*x.shape[:-1], width)


def fft_pays_off(d: int, n: int, width: int) -> bool:
    """Whether n locations of d channels go through the FFT faster than through the d x d matrix."""
    return _FFT * n * width * math.log2(max(width, 2)) < d * d * (_PLACE + _FORM * n)


class TensorSketch(Normalization):
    """The compact bilinear descriptor by Tensor Sketch, exactly that of the matrix before it.

    Inner products of sketches are those of the matrices in the mean over seeds, with a variance that falls as 1/width.
    It follows bilinear pooling (compact bilinear pooling), a matrix function (the sketch of A^(1/2), of log(A), ...),
    or the matrix of two networks.

    Args:
        width: the length of the descriptor, D.
        seed: of the hashes and signs, which are saved with the network.
        learn_signs: whether the signs are parameters, which fine-tuning turns into any weights.
    """

    takes: ClassVar[str] = "spd"
    takes_applied: ClassVar[bool] = True

    places_1: Tensor
    places_2: Tensor
    signs_1: Tensor
    signs_2: Tensor

    def __init__(
        self, inputs: tuple[Shape, ...], width: int = DEFAULT_WIDTH, *, seed: int = 0, learn_signs: bool = False
    ):
        super().__init__()
        sides = matrix_sides("tensor_sketch", inputs[0])
        self.width, self.seed, self.learn_signs = check_width("tensor_sketch", width), seed, learn_signs
        generator = torch.Generator().manual_seed(seed)
        for i, side in enumerate(sides, start=1):
            self.register_buffer(f"places_{i}", random_integers(self.width, side, generator=generator))
            keep_signs(self, f"signs_{i}", random_signs(side, generator=generator).float(), learn_signs)

    def shape(self, given: Shape) -> Vector:
        """The result has `width` numbers."""
        matrix_sides("tensor_sketch", given)
        return Vector(self.width)

    def forward(self, A: Tensor | Factored | Applied) -> Tensor:
        """Return the sketches, shape (..., width)."""
        places, signs = (self.places_1, self.places_2), (self.signs_1, self.signs_2)
        columns = columns_of(A)
        if columns is None or not fft_pays_off(columns.shape[-2], columns.shape[-1], self.width):
            return tensor_sketch(formed(A), places, signs, self.width)
        assert not isinstance(A, Tensor)
        X, M, c = factors_of(A)
        sketch = tensor_sketch_of_columns(X, M, places, signs, self.width)
        if c is None:
            return sketch
        ones = X.new_ones(X.shape[-2])
        identity = count_sketch(ones, (places[0] + places[1]) % self.width, signs[0] * signs[1], self.width)
        return sketch + c[..., None] * identity

    def extra_repr(self) -> str:
        """Show every option."""
        return f"width={self.width}, seed={self.seed}, learn_signs={self.learn_signs}"


# --- what sketches share ----------------------------------------------------------------------------------------------


def matrix_sides(who: str, given: Shape) -> tuple[int, int]:
    """Rows and columns of the matrix that is sketched."""
    if isinstance(given, Spd):
        return given.dim, given.dim
    if isinstance(given, Matrix):
        return given.rows, given.columns
    raise ValueError(
        f"{who}: expected a matrix, got {given}; it follows bilinear or asymmetric pooling, or a matrix function."
    )


def check_width(who: str, width: int, name: str = "width") -> int:
    """Raise unless the width is a whole number >= 1."""
    if isinstance(width, bool) or not isinstance(width, Integral) or width < 1:
        raise ValueError(f"{who}: expected `{name}` to be a whole number >= 1, got {width!r}.")
    return int(width)


def random_signs(*shape: int, generator: torch.Generator) -> Tensor:
    """Draw +1 and -1 with equal chances, as int8."""
    return (2 * random_integers(2, *shape, generator=generator) - 1).to(torch.int8)


def random_integers(below: int, *shape: int, generator: torch.Generator) -> Tensor:
    """Whole numbers from 0 to below - 1; where tensors are made without content (`meta`), only their shape."""
    if torch.get_default_device().type == "meta":
        return torch.empty(shape, dtype=torch.int64)
    return torch.randint(below, shape, generator=generator)


def keep_signs(module: nn.Module, name: str, signs: Tensor, learn: bool) -> None:
    """Keep the signs in a buffer, or in a parameter if they are learned."""
    if learn:
        module.register_parameter(name, nn.Parameter(signs.float()))
    else:
        module.register_buffer(name, signs)
