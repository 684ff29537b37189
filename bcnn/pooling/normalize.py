r"""Normalizations of the pooled matrix, in any order: matrix functions, signed square root, l2.

Paper: Sec. 2.1 and Table 1. Each is written as text, such as ``"matrix_sqrt"``, ``"matrix_power(0.3)"`` or
``"matrix_sqrt(forward='newton_schulz', num_iters=5)"``, so that a configuration is plain JSON.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from ..linalg.operand import Factored
from ..linalg.spectrum import widest
from ..matfun.modules import MatrixLog, MatrixPower, MatrixSqrt
from ..parts.registry import Part, Registry
from .cholesky_log import CholeskyLog
from .contract import Normalization
from .random_maclaurin import RandomMaclaurin
from .signed_power import SignedPower
from .singular_power import SingularPower
from .tangent_power import TangentPower
from .tensor_sketch import TensorSketch

# Where the signed square root turns linear, relative to the mean entry, and the length below which l2 does so;
# docs/pooling.md, "At zero".
DEFAULT_DELTA = 1e-3
DEFAULT_LENGTH = 1e-6

# In the gradient of the authors' signed square root.
AUTHORS_SHIFT = 1e-8

# The largest of such options, whose squares are numbers still.
_MOST = 1e15

# The mean entry of a descriptor that is zero throughout.
_LEAST_MEAN = 1e-15


def signed_sqrt(x: Tensor, *, delta: float = DEFAULT_DELTA, weights: Tensor | None = None) -> Tensor:
    r"""Entrywise signed square root with a finite derivative at zero.

    .. math:: y_i = \frac{x_i}{(x_i^2 + \delta^2 m^2)^{1/4}}, \qquad m^2 = \text{mean of } x_i^2

    Paper: Sec. 2.1, `x <- sign(x) sqrt(|x|)`. Its derivative at 0 is infinite: an entry that is exactly zero, of a dead
    channel, would make the gradient NaN, and one that rounding has moved from zero would make it noise. Here y differs
    from the paper's by the relative amount (delta m / x)^2 / 4: nothing in float32 for an entry of mean size, 0.25 %
    for one a hundred times smaller. Its derivative is at most 1 / sqrt(delta m), at 0; y scales as the paper's does.

    With ``delta=0`` it is the paper's to the last digit, with the gradient of the authors' code,
    :math:`1 / (2 \sqrt{|x| + 10^{-8}})`: a first derivative alone, the second counts as zero.

    Args:
        x: descriptors, shape (..., m); a matrix is to be flattened first.
        delta: where the root turns linear, relative to the root mean square of the descriptor; 0 for nowhere.
        weights: counts each square so many times; the multiplicities of a triangle.
    """
    wide = _at_least_float32(x)
    if not x.shape[-1]:
        return x
    if delta == 0:
        return _exact_sqrt(wide).to(x.dtype)
    count = x.shape[-1] if weights is None else weights.sum()
    mean = _length(wide, floor=_LEAST_MEAN, weights=weights) / count**0.5
    if torch.compiler.is_compiling():  # ONNX has no hypot; entries over their mean have squares that are numbers
        return (wide * (mean * ((wide / mean).square() + delta**2).sqrt()).rsqrt()).to(x.dtype)
    return (wide * torch.hypot(wide, delta * mean).rsqrt()).to(x.dtype)


def _exact_sqrt(x: Tensor) -> Tensor:
    fixed = x.detach()
    slope = 0.5 * (fixed.abs() + AUTHORS_SHIFT).rsqrt()
    return fixed.sign() * fixed.abs().sqrt() + slope * (x - fixed)  # the last term is zero, and has the derivative


def shifted_sqrt(x: Tensor, *, delta: float = 1e-5) -> Tensor:
    r"""The signed square root of the authors' released PyTorch code, for their checkpoints.

    .. math:: y = \mathrm{sign}(x) \big( \sqrt{|x| + \delta} - \sqrt{\delta} \big)
    """
    wide = _at_least_float32(x)
    return (torch.relu(wide).add(delta).sqrt() - torch.relu(-wide).add(delta).sqrt()).to(x.dtype)


def l2_normalize(x: Tensor, *, length: float = DEFAULT_LENGTH, weights: Tensor | None = None) -> Tensor:
    r"""Each descriptor divided by its Euclidean length, zero left at zero.

    .. math:: y = \frac{x}{\sqrt{\|x\|^2 + \mathrm{length}^2}}

    Paper: Sec. 2.1. `length` keeps the derivative finite, at most 1 / length, where x is zero (a black image).

    Args:
        x: descriptors, shape (..., m).
        length: far below that of any real descriptor.
        weights: counts each square so many times; the multiplicities of a triangle.
    """
    wide = _at_least_float32(x)
    return (wide / _length(wide, floor=length, weights=weights)).to(x.dtype) if x.shape[-1] else x


def _length(x: Tensor, *, floor: float, weights: Tensor | None) -> Tensor:
    """``sqrt(sum x^2 + floor^2)``, shape (..., 1), smooth everywhere."""
    # Squares of numbers up to 1 do not overflow; the result does not depend on `size`.
    size = x.detach().abs().amax(-1, keepdim=True).clamp_min(floor)
    squares = (x / size).square()
    total = (squares if weights is None else squares * weights).sum(-1, keepdim=True)
    return size * (total + (floor / size).square()).sqrt()


class SignedSqrt(Normalization):
    """`signed_sqrt` as a module.

    Args:
        delta: where the root turns linear, relative to the root mean square of the descriptor; 0 for the paper's own.
    """

    weighted: ClassVar[bool] = True

    def __init__(self, delta: float = DEFAULT_DELTA):
        super().__init__()
        self.delta = _positive("signed_sqrt", "delta", delta, or_zero=True)

    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Descriptors (..., m)."""
        return signed_sqrt(x, delta=self.delta, weights=weights)

    def extra_repr(self) -> str:
        return f"delta={self.delta:g}"


class ShiftedSqrt(Normalization):
    """`shifted_sqrt` as a module.

    Args:
        delta: what is added below the root.
    """

    def __init__(self, delta: float = 1e-5):
        super().__init__()
        self.delta = _positive("shifted_sqrt", "delta", delta)

    def forward(self, x: Tensor) -> Tensor:
        """Entry by entry, any shape."""
        return shifted_sqrt(x, delta=self.delta)

    def extra_repr(self) -> str:
        return f"delta={self.delta:g}"


class L2Normalize(Normalization):
    """`l2_normalize` as a module.

    Args:
        length: far below that of any real descriptor; keeps the derivative finite at zero.
    """

    weighted: ClassVar[bool] = True

    def __init__(self, length: float = DEFAULT_LENGTH):
        super().__init__()
        self.length = _positive("l2", "length", length)

    def forward(self, x: Tensor, weights: Tensor | None = None) -> Tensor:
        """Descriptors (..., m)."""
        return l2_normalize(x, length=self.length, weights=weights)

    def on_factored(self, A: Factored) -> Factored:
        """The same by the factor: ||A||_F from the smaller one of X^T X and X X^T, and the ridge."""
        X, ridge = A.X, A.ridge
        small = (X.mT @ X if X.shape[-1] < X.shape[-2] else X @ X.mT).to(widest(X))  # whose squares are numbers
        squared = small.square().sum((-2, -1)) + self.length**2
        if ridge is not None:
            wide = ridge.to(small.dtype)
            squared = squared + 2 * wide * small.diagonal(dim1=-2, dim2=-1).sum(-1) + X.shape[-2] * wide.square()
        factor = squared.rsqrt().to(X.dtype)
        return Factored(X * factor.sqrt()[..., None, None], None if ridge is None else ridge * factor, A.least)

    def extra_repr(self) -> str:
        return f"length={self.length:g}"


NORMALIZATIONS = Registry(
    "normalization",
    "matrix_power(0.3)",
    {
        "matrix_sqrt": Part(MatrixSqrt, "the matrix square root, A^(1/2)"),
        "matrix_log": Part(MatrixLog, "the matrix logarithm, log(A)"),
        "matrix_power": Part(MatrixPower, "a matrix power, A^p, with an exponent that can be learned"),
        "signed_sqrt": Part(SignedSqrt, "sign(x) sqrt(|x|), entry by entry"),
        "shifted_sqrt": Part(ShiftedSqrt, "the signed square root of the authors' released code"),
        "l2": Part(L2Normalize, "descriptors of length 1"),
        "signed_power": Part(SignedPower, "sign(x) |x|^p, entry by entry; O2P has p = 0.75"),
        "singular_power": Part(SingularPower, "U S^p V^T, a matrix power for the matrix of two networks"),
        "tangent_power": Part(TangentPower, "(A^theta - I) / theta, of which log(A) is the limit"),
        "cholesky_log": Part(CholeskyLog, "the logarithm of the Cholesky factor"),
        "tensor_sketch": Part(TensorSketch, "the matrix before it, sketched: compact bilinear pooling, MoNet"),
        "random_maclaurin": Part(RandomMaclaurin, "the matrix before it, sketched by random signs"),
    },
)


def _at_least_float32(x: Tensor) -> Tensor:
    """Half precision has no room for the small numbers that keep derivatives finite."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _positive(who: str, name: str, value: float, *, or_zero: bool = False) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not (0 < value <= _MOST or (or_zero and value == 0)):
        least = ">= 0" if or_zero else "> 0"
        raise ValueError(f"{who}: expected `{name}` to be a number {least} and <= {_MOST:g}, got {value!r}.")
    return float(value)
