r"""A mixture of Gaussians with diagonal covariances, and the gradients of its likelihood: what a Fisher vector is.

Legend: X points (B, n, d); w weights (B, n); pi, mu, sigma the mixture (K), (K, d), (K, d); q posteriors (B, n, K).
"""

from __future__ import annotations

import warnings

import numpy
import torch
from torch import Tensor, nn

from ..linalg.autodiff import full_precision
from ..linalg.spectrum import widest

# Added to variances that are zero throughout: of a network that is dead, say.
_LEAST_VARIANCE = 1e-12


class Mixture(nn.Module):
    """K Gaussians in d dimensions. All of it learns when a network is fine-tuned, and stays a mixture.

    Args:
        num_words: K.
        channels: d.
    """

    def __init__(self, num_words: int, channels: int):
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(num_words))  # pi = softmax(logits)
        self.mu = nn.Parameter(torch.zeros(num_words, channels))
        self.log_sigma = nn.Parameter(torch.zeros(num_words, channels))

    @torch.no_grad()
    def fit(self, points: numpy.ndarray, *, floor: float, seed: int) -> None:
        """By expectation maximization, from k-means (scikit-learn).

        Args:
            points: shape (m, d).
            floor: added to all variances, relative to the largest variance of a channel.
            seed: of k-means.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.mixture import GaussianMixture

        wide = points.astype(numpy.float64)
        added = floor * float(wide.var(0).max()) + _LEAST_VARIANCE
        mixture = GaussianMixture(len(self.mu), covariance_type="diag", reg_covar=added, random_state=seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a vocabulary is good enough before it is the best
            mixture.fit(wide)
        self.logits.copy_(torch.from_numpy(mixture.weights_).log())
        self.mu.copy_(torch.from_numpy(mixture.means_))
        self.log_sigma.copy_(torch.from_numpy(mixture.covariances_).log() / 2)

    def log_posteriors(self, X: Tensor) -> Tensor:
        r"""The logarithms of q, shape (B, n, K), in the widest precision that the device has."""
        X, mu, precision = self._wide(X)
        # ||(x - mu) / sigma||^2 by products; in float64 the difference loses nothing that matters.
        squares = X.square() @ precision.mT - 2 * X @ (mu * precision).mT + (mu.square() * precision).sum(-1)
        log_pi = self.logits.to(X.dtype).log_softmax(-1)
        return (log_pi - self.log_sigma.to(X.dtype).sum(-1) - squares / 2).log_softmax(-1)

    def fisher_vector(self, X: Tensor, w: Tensor) -> Tensor:
        r"""The gradients with respect to mu and sigma, whitened, shape (B, K, 2 d), in the precision of X.

        .. math::
            u_k = \frac{1}{\sqrt{\pi_k}} \sum_i w_i q_{ik} \frac{x_i - \mu_k}{\sigma_k}, \qquad
            v_k = \frac{1}{\sqrt{2 \pi_k}} \sum_i w_i q_{ik} \Big[ \frac{(x_i - \mu_k)^2}{\sigma_k^2} - 1 \Big]

        Args:
            X: points, shape (B, n, d).
            w: their weights, shape (B, n); 1/n each for the plain Fisher vector.
        """
        with full_precision(X):
            q = self.log_posteriors(X).exp() * w[..., None]  # (B, n, K)
            wide, mu, precision = self._wide(X)
            first, second = q.mT @ wide, q.mT @ wide.square()  # (B, K, d)
            count = q.sum(-2)[..., None]  # (B, K, 1)
            scale = (-self.logits.to(wide.dtype).log_softmax(-1) / 2).exp()[:, None]  # 1 / sqrt(pi)
            u = (first - count * mu) * precision.sqrt() * scale
            v = ((second - 2 * mu * first + count * mu.square()) * precision - count) * scale * 0.5**0.5
            return torch.cat([u, v], -1).to(X.dtype)

    def _wide(self, X: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Convert X, mu and 1 / sigma^2 to the widest precision."""
        dtype = widest(X)
        return X.to(dtype), self.mu.to(dtype), (-2 * self.log_sigma.to(dtype)).exp()

    def extra_repr(self) -> str:
        """Show the number of Gaussians and of channels."""
        return f"num_words={self.mu.shape[0]}, channels={self.mu.shape[1]}"
