r"""Low-rank bilinear pooling: classifiers of low rank, in a projection that all share; A is never formed.

.. math:: s_k = \|U_{k+}^T P^T X\|_F^2 - \|U_{k-}^T P^T X\|_F^2 + b_k = \langle W_k, A \rangle + b_k, \qquad
    W_k = P (U_{k+} U_{k+}^T - U_{k-} U_{k-}^T) P^T

Reference: Kong & Fowlkes, "Low-rank bilinear pooling for fine-grained classification", CVPR 2017. Their setting is
m = 100, r = 8 (four positive, four negative): the width of 10K in the paper's Table 4 is m^2.

P comes from the training descriptors (PCA, theirs) or from the classifiers themselves (their co-decomposition: with
F_k the scaled eigenvectors of a trained W_k, the best shared P are the leading left singular vectors of
[F_1, ..., F_K]); U_k are the eigenvectors of P^T W_k P with the largest eigenvalues of either sign. Both go on learning
in fine-tuning. Their regularizer of W_k has no counterpart here: --weight-decay acts on P and U.

Legend: X features in columns (B, d, n), divided by sqrt(n); A = X X^T + ridge I; P (d, m); U (K, m, r), the positive
half first; S = P^T A P; K classes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..errors import unknown_name
from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd, expect
from .contract import Scorer

PROJECTIONS = ("pca", "codecomposition", "random")


def low_rank_scores(given: Tensor | Factored, P: Tensor, U: Tensor, signs: Tensor) -> Tensor:
    r"""``<W_k, A>`` of every class by the m x m matrix :math:`S = P^T A P`, from the factor of A where there is one.

    Cost: 2 d m n operations for P^T X, m^2 n for S, 2 m^2 K r for the classes; those of the formula above, which are
    2 m n K r, are more as soon as there are more classifiers than locations.

    Args:
        given: A, shape (B, d, d), formed or not; any symmetric matrix.
        P: the projection, shape (d, m).
        U: the factors of the classes, shape (K, m, r).
        signs: +1 or -1 for each of the r columns.

    Returns:
        Shape (B, K).
    """
    if isinstance(given, Factored):
        projected = P.mT @ given.X.to(P.dtype)  # (B, m, n)
        S = projected @ projected.mT
        if given.ridge is not None:
            S = S + given.ridge.to(P.dtype)[:, None, None] * (P.mT @ P)
    else:
        S = P.mT @ given.to(P.dtype) @ P
    columns = U.movedim(0, 1).flatten(1)  # (m, K r)
    along = ((S @ columns) * columns).sum(-2)  # (B, K r)
    result: Tensor = along.unflatten(-1, (len(U), -1)) @ signs.to(P.dtype)
    return result


def leading_directions(W: Tensor, rank: int) -> Tensor:
    """F with W ~ F+ F+^T - F- F-^T: the best for each half of the columns, shape (..., d, d) to (..., d, rank)."""
    values, vectors = torch.linalg.eigh(W)
    half = rank // 2
    take = min(half, W.shape[-1])
    F = W.new_zeros(*W.shape[:-1], rank)
    F[..., :take] = (vectors * values.clamp_min(0).sqrt()[..., None, :]).flip(-1)[..., :take]
    F[..., half : half + take] = (vectors * (-values).clamp_min(0).sqrt()[..., None, :])[..., :take]
    return F


class LowRankScorer(Scorer):
    """The strength of A along a few directions of each class, in a projection that all classes share.

    With normalizations before it: l2 and, for fewer locations than channels, the matrix square root are taken on the
    factor of A; others, such as the signed square root, need the entries of A, which is formed for them.

    Args:
        dim: m, the columns of the shared projection; at most the channels.
        rank: r, directions per class, half of them positive, half negative.
        projection: how P starts: pca (of the training descriptors), codecomposition (of the trained classifiers) or
            random.
        learn_projection: whether P learns in fine-tuning, too.
    """

    takes: ClassVar[type[Shape]] = Spd
    takes_normalized: ClassVar[bool] = True
    can_start: ClassVar[bool] = True
    looks_at_descriptors: ClassVar[bool] = True

    scale: Tensor
    signs: Tensor

    def __init__(
        self,
        inputs: tuple[Shape, ...],
        num_classes: int,
        dim: int = 100,
        rank: int = 8,
        projection: str = "pca",
        learn_projection: bool = True,
    ):
        super().__init__()
        if isinstance(dim, bool) or not isinstance(dim, int) or dim < 1:
            raise ValueError(f"lrbp: expected `dim` to be a whole number >= 1, got {dim!r}; the authors' is 100.")
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 2 or rank % 2:
            raise ValueError(f"lrbp: expected `rank` to be an even number >= 2, got {rank!r}; the authors' is 8.")
        if projection not in PROJECTIONS:
            raise unknown_name("lrbp", "projection", projection, PROJECTIONS)
        channels = expect("lrbp", Spd, inputs[0], "it needs bilinear pooling, and no sketch after it").dim
        self.num_classes, self.projection = num_classes, projection
        m = min(dim, channels)
        self.P = nn.Parameter(torch.linalg.qr(torch.randn(channels, m))[0], requires_grad=bool(learn_projection))
        self.U = nn.Parameter(torch.randn(num_classes, m, rank) / m)
        self.bias = nn.Parameter(torch.zeros(num_classes))
        self.register_buffer("signs", torch.tensor([1.0, -1.0]).repeat_interleave(rank // 2))
        # One over the mean trace of training images, so that steps of descent do not depend on the scale of features.
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, given: Tensor | Factored) -> Tensor:
        """Scores of matrices (B, d, d), formed or not, shape (B, K)."""
        return self.scale * low_rank_scores(given, self.P, self.U, self.signs) + self.bias

    @torch.no_grad()
    def look_at(self, descriptors: Iterable[Tensor]) -> None:
        """P and the scale from the mean matrix of the training images: its leading eigenvectors, and its trace."""
        total, count = None, 0
        for rows in descriptors:
            part = rows.double().sum(0)
            total = part if total is None else total + part
            count += len(rows)
        if total is None or not count:
            raise ValueError("lrbp: expected training descriptors to find its projection from, got none.")
        mean = self._as_matrix(total[None] / count)[0]
        trace = float(mean.diagonal().sum())
        if trace > 0:
            self.scale.fill_(1 / trace)
        if self.projection == "pca":
            self.P.copy_(torch.linalg.eigh(mean)[1].flip(-1)[:, : self.P.shape[1]])

    @torch.no_grad()
    def start_from(self, weight: Tensor, bias: Tensor) -> None:
        """The classifier of rank r in the projection that is nearest to W_k there."""
        W = self._as_matrix(weight.double()) / self.scale.double().cpu()
        if self.projection == "codecomposition":
            F = leading_directions(W, self.U.shape[-1])
            left, _, _ = torch.linalg.svd(F.movedim(0, 1).flatten(1), full_matrices=True)
            self.P.copy_(left[:, : self.P.shape[1]])
            self.U.copy_(left[:, : self.P.shape[1]].mT @ F)
        else:
            P = self.P.detach().double().cpu()
            self.U.copy_(leading_directions(P.mT @ W @ P, self.U.shape[-1]))
        self.bias.copy_(bias)

    def extra_repr(self) -> str:
        """Show the sizes."""
        d, m = self.P.shape
        return f"{d}, {self.num_classes}, dim={m}, rank={len(self.signs)}, projection={self.projection!r}"

    def _as_matrix(self, rows: Tensor) -> Tensor:
        """Descriptors (K, D), upper triangles or whole matrices, as matrices (K, d, d)."""
        d = len(self.P)
        if rows.shape[-1] == d * d:
            A = rows.unflatten(-1, (d, d))
            result: Tensor = (A + A.mT) / 2
            return result
        if rows.shape[-1] != d * (d + 1) // 2:
            raise ValueError(f"lrbp: expected {d} x {d} matrices or their triangles, got {rows.shape[-1]} numbers.")
        where = torch.triu_indices(d, d)
        A = rows.new_zeros(*rows.shape[:-1], d, d)
        A[..., where[0], where[1]] = rows / 2**0.5  # off the diagonal a triangle has entries times sqrt 2
        A = A + A.mT
        A.diagonal(dim1=-2, dim2=-1).mul_(2**-0.5)  # r / sqrt 2 twice is sqrt 2 r
        return A
