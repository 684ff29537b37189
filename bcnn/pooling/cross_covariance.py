r"""Cross-covariance of narrow projections, in several heads, with the mean beside it: for maps and token sequences.

.. math:: C_h = \frac1n \sum_i L_h (x_i - \mu) \, (x_i - \mu)^T R_h^T, \qquad
    \phi = [\mu; \; \mathrm{vec}\, r(C_1); \; \dots; \; \mathrm{vec}\, r(C_H)]

with projections L_h, R_h to `dim` numbers, which are learned, and r none, the singular values to the power 1/2, or the
cheap form of it that SoT takes: C divided by the root of its largest singular value, which one step of a power
iteration from a learned vector estimates. (SoT's formula, s^p u v^T + (C - s u v^T) / s^(1 - p), is C / s^(1 - p).)

References: Xie et al., *So-ViT: mind visual tokens for vision transformer* (SoT), 2021: heads of 14 to 16 numbers,
``root="largest"``, on the visual tokens, next to the class token. Gao et al., *Tuning pre-trained model via moment
probing*, ICCV 2023, and the covariance probes after it: one head, ``mean=True``, on frozen features of any sequence.

Departures: SoT's code subtracts one number, the mean over tokens and channels together; here each channel's mean is
subtracted. The class token is the backbone's business: mask it, or leave it among the tokens.

Legend: X features in columns (B, d, n), divided by sqrt(n); L, R projections (H, m, d); C (B, H, m, m).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import unknown_name
from ..linalg.autodiff import full_precision
from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Shape, Vector, expect_maps
from .average import average_pool
from .contract import Pooling
from .covariance import centred_columns
from .features import as_columns
from .singular_power import singular_power
from .tensor_sketch import check_width

ROOTS = ("none", "largest", "all")
STARTS = ("random", "pca")

# Below this the largest singular value counts as this: a matrix that is zero stays zero.
_LEAST_VALUE = 1e-6


class CrossCovariancePool(Pooling, FittedPart):
    """Cross-covariance of learned narrow projections, per head, and the mean.

    Args:
        dim: numbers per projection, m.
        heads: pairs of projections, H.
        mean: whether the mean feature stands before the matrices.
        root: none, largest (C divided by the root of its largest singular value, as in SoT) or all (the square root of
            every singular value).
        centre: whether to take the mean of the image away first.
        start: random (orthonormal rows) or pca (both projections on the directions of largest variance of the training
            features, the first head has the largest).
        seed: of a random start.
    """

    def __init__(
        self,
        inputs: tuple[Shape, ...],
        dim: int = 16,
        *,
        heads: int = 1,
        mean: bool = True,
        root: str = "none",
        centre: bool = True,
        start: str = "random",
        seed: int = 0,
    ):
        super().__init__()
        (maps,) = expect_maps("cross_covariance", inputs, 1)
        for name, value, names in (("root", root, ROOTS), ("start", start, STARTS)):
            if value not in names:
                raise unknown_name("cross_covariance", name, value, names)
        self.dim, self.heads = check_width("cross_covariance", dim), check_width("cross_covariance", heads, "heads")
        if start == "pca" and dim * heads > maps.channels:
            raise ValueError(
                f"cross_covariance: expected start='pca' with at most {maps.channels} directions, one per channel, "
                f"got {heads} heads of {dim}; take start='random', or fewer."
            )
        self.mean, self.root, self.centre, self.start, self.seed = mean, root, centre, start, seed
        generator = torch.Generator().manual_seed(seed)
        shape = (self.heads, self.dim, maps.channels)
        self.left, self.right = (nn.Parameter(_orthonormal(*shape, generator=generator)) for _ in range(2))
        if root == "largest":
            self.vector = nn.Parameter(torch.randn(self.dim, generator=generator))
        if start == "random":
            self.mark_fitted()

    def shape(self, *inputs: Shape) -> Vector:
        """H m^2 numbers and, with the mean, one per channel."""
        (maps,) = expect_maps("cross_covariance", inputs, 1)
        return Vector(self.mean * maps.channels + self.heads * self.dim**2)

    @torch.no_grad()
    def fit(self, batches: Batches) -> None:
        """Both projections on the leading eigenvectors of the mean covariance of the training images; if asked for."""
        if self.start != "pca":
            return
        total = self.left.new_zeros(self.left.shape[-1], self.left.shape[-1], dtype=torch.float64)
        for (features,) in batches():
            X = self._columns(features, "maps", None).double()
            total += (X @ X.mT).sum(0)
        U = torch.linalg.eigh(total)[1].flip(-1).mT  # (d, d), the largest first, in rows
        leading = U[: self.heads * self.dim].unflatten(0, (self.heads, self.dim))
        self.left.copy_(leading)
        self.right.copy_(leading)
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """The mean, then the matrices row by row, shape (B, [d +] H m^2)."""
        self.check_fitted()
        X = self._columns(features, layout, mask)
        with full_precision(X):
            left, right = (own.to(X.dtype) @ X[:, None] for own in (self.left, self.right))  # (B, H, m, n)
            C = left @ right.mT
            if self.root == "all":
                C = singular_power(C, 0.5)
            elif self.root == "largest":
                C = C * _largest(C, self.vector.to(C.dtype)).rsqrt()
        found = [C.flatten(1)]
        if self.mean:
            found.insert(0, average_pool(features, layout=layout, mask=mask))
        return torch.cat(found, -1)

    def _columns(self, features: Tensor, layout: str, mask: Tensor | None) -> Tensor:
        columns = centred_columns if self.centre else as_columns
        return columns("cross_covariance", features, layout=layout, mask=mask)

    def extra_repr(self) -> str:
        """Show every option."""
        names = ("dim", "heads", "mean", "root", "centre", "start", "seed")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)


def _largest(C: Tensor, v: Tensor) -> Tensor:
    """An estimate of the largest singular value from below, (..., 1, 1), by one step from the vector v (m,)."""
    u = functional.normalize(C @ v[:, None], dim=-2)
    w = functional.normalize(C.mT @ u, dim=-2)
    return (u.mT @ C @ w).clamp_min(_LEAST_VALUE)


def _orthonormal(heads: int, dim: int, channels: int, *, generator: torch.Generator) -> Tensor:
    """Random rows, orthonormal within a head where there are enough channels."""
    random = torch.randn(heads, channels, dim, generator=generator)
    result: Tensor = torch.linalg.qr(random)[0].mT if dim <= channels else random.mT * channels**-0.5
    return result
