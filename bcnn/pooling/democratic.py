r"""Second-order democratic aggregation: bilinear pooling in which frequent features do not outvote the others.

Paper: not in it. Lin, Maji, Koniusz, ECCV 2018 ("gamma-democratic").

Legend: X features in columns (B, d, n), divided by sqrt(n); K kernel of the locations (B, n, n); alpha weights (B, n).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.autodiff import full_precision
from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd
from .bilinear import DEFAULT_EPS, BilinearPool
from .contract import Pooling
from .features import as_columns, ridge_of
from .words import channels_of, check_counts

# On the diagonal of K, whose row sums are 1 on average: a location that is zero has a weight as well.
_DELTA = 1e-10


def democratic_weights(K: Tensor, *, gamma: float = 0.5, num_iters: int = 10, tau: float = 0.5) -> Tensor:
    r"""The weights of a gamma-democratic aggregation, by damped Sinkhorn iteration.

    .. math:: \alpha_i (K \alpha)_i = \big((K 1)_i\big)^\gamma, \qquad
        \alpha \leftarrow \alpha^{1 - \tau} \Big( \frac{(K 1)^\gamma}{K \alpha} \Big)^\tau

    With gamma = 1 all weights are 1; with gamma = 0 every location contributes the same to the kernel of the sum with
    itself. The equation has one positive solution for a positive definite K without negative entries. The gradient is
    that of the iteration, through (K 1)^gamma as well, which the authors' code keeps constant.

    Reference: Lin, Maji, Koniusz, ECCV 2018, Sec. 3, and their code: 10 iterations, tau 0.5.

    Args:
        K: kernels, shape (..., n, n), symmetric, no negative entries, row sums > 0.
        gamma: between 0 and 1.
        num_iters: steps.
        tau: of every step, how much is new; with 1 the iteration swings.

    Example:
        >>> democratic_weights(torch.diag(torch.tensor([1.0, 4.0])), gamma=0, num_iters=40)
        tensor([1.0000, 0.5000])
    """
    C = K.sum(-1) ** gamma
    alpha = torch.ones_like(C)
    for _ in range(num_iters):
        alpha = alpha ** (1 - tau) * (C / (K @ alpha[..., None])[..., 0]) ** tau
    return alpha


class DemocraticPool(Pooling):
    r"""Bilinear pooling with a weight for every location, such that no feature counts for being frequent.

    .. math:: A = \frac1n \sum_{i=1}^n \alpha_i x_i x_i^T + \epsilon I, \qquad
        \alpha_i (K \alpha)_i = \big((K 1)_i\big)^\gamma, \quad K_{ij} = \langle x_i, x_j \rangle^2

    With gamma = 1 it is bilinear pooling, with gamma = 0 democratic: every location has the same say in <A, A>. K is
    divided by the mean of its row sums first, so that A grows with the squares of the features as in bilinear pooling;
    that changes all weights of an image by one factor, which l2 takes away.

    A is not formed, X diag(sqrt(alpha)) is its factor: matrix functions can follow, thin ones as well, and so can
    the normalization `tensor_sketch`, before or after them. That is the sketched form of the reference, the sum of
    alpha_i times the sketch of x_i x_i^T, but for K, which is exact here and estimated from the sketches there.

    Reference: Lin, Maji, Koniusz, ECCV 2018: gamma 0.5, 10 iterations, tau 0.5.
    Valid: any features; a location that is zero, or masked, contributes nothing.
    Cost: 2 n^2 d operations for K, little for the iteration.

    Args:
        gamma: from 0, democratic, to 1, the plain sum.
        num_iters: steps of Sinkhorn's iteration.
        tau: damping of the steps, between 0 and 1.
        eps: the ridge, as in bilinear pooling; 0 for none.
        eps_scale: trace, largest or absolute, as in bilinear pooling.
    """

    def __init__(
        self,
        gamma: float = 0.5,
        num_iters: int = 10,
        tau: float = 0.5,
        eps: float = DEFAULT_EPS,
        eps_scale: str = "trace",
    ):
        super().__init__()
        check_counts("democratic", num_iters=num_iters)
        if not 0 <= gamma <= 1 or not 0 < tau <= 1:
            raise ValueError(
                f"democratic: expected `gamma` from 0 to 1 and `tau` above 0, up to 1, got {gamma} and {tau}."
            )
        self.gamma, self.num_iters, self.tau = float(gamma), num_iters, float(tau)
        self.plain = BilinearPool(eps, eps_scale)  # which knows about ridges

    def shape(self, *inputs: Shape) -> Spd:
        """The result is a d x d matrix for d channels."""
        return Spd(channels_of("democratic", inputs))

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Factored:
        """X diag(sqrt(alpha)) and the ridge, shapes (B, d, n) and (B,)."""
        X = as_columns("democratic", features, layout=layout, mask=mask)
        n = X.new_tensor(X.shape[-1]) if mask is None else mask.flatten(1).sum(-1).clamp_min(1).to(X)
        with full_precision(X):
            A = Factored(X * self.weights(X, n).sqrt()[:, None, :], None)
        eps, eps_scale = self.plain.eps, self.plain.eps_scale
        return Factored(A.X, ridge_of(A, eps=eps, eps_scale=eps_scale), self.plain.least_eigenvalue(X.shape[-2]))

    def weights(self, X: Tensor, n: Tensor) -> Tensor:
        """Alpha of every location, shape (B, n), given how many are valid per image."""
        # Of trace 1, so that fourth powers neither overflow nor vanish.
        unit = X / X.square().sum((-2, -1)).clamp_min(torch.finfo(X.dtype).tiny).sqrt()[:, None, None]
        K = (unit.mT @ unit).square()
        mean = (K.sum((-2, -1)) / n).clamp_min(_DELTA**2)[:, None, None]
        K = K / mean + _DELTA * torch.eye(K.shape[-1], dtype=K.dtype, device=K.device)
        return democratic_weights(K, gamma=self.gamma, num_iters=self.num_iters, tau=self.tau)

    @property
    def has_ridge(self) -> bool:
        """Whether a ridge is added: it is, unless eps is 0."""
        return self.plain.has_ridge

    def extra_repr(self) -> str:
        """Show the options besides those of the ridge."""
        return f"gamma={self.gamma:g}, num_iters={self.num_iters}, tau={self.tau:g}"
