r"""NetVLAD: VLAD with soft assignments, all of which learns.

Paper: not in it. Arandjelovic et al., CVPR 2016, the layer with biases (VLADv2 of their code).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..linalg.autodiff import full_precision
from ..linalg.spectrum import widest
from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Matrix, Shape
from . import words
from .contract import Pooling
from .normalize import l2_normalize
from .words import NUM_WORDS, PER_WORD, as_points, channels_of, check_counts, squared_distances

# The share of the second nearest word beside the nearest, on average, from which alpha follows.
_SECOND = 0.01


class NetVladPool(Pooling, FittedPart):
    r"""The weighted mean difference between features and words, for every word; weights, biases and words learn.

    .. math::
        V_k = \frac1n \sum_{i=1}^n a_k(x_i) (x_i - c_k), \qquad
        a_k(x) = \frac{e^{w_k^T x + b_k}}{\sum_j e^{w_j^T x + b_j}}

    Features are given length 1 first, and every V_k at the end (intra-normalization). It starts as a soft VLAD: c_k
    are the centres of k-means (scikit-learn) on a sample of the training images' locations, w_k = 2 alpha c_k and
    b_k = -alpha ||c_k||^2, so that a is the softmax of -alpha ||x - c_k||^2. alpha is chosen so that the second
    nearest word gets 0.01 times the share of the nearest, on average:
    alpha = -ln(0.01) / mean(d_2^2 - d_1^2). The reference sums where this divides by n, which the lengths take away.

    Reference: Arandjelovic, Gronat, Torii, Pajdla, Sivic, CVPR 2016, with 64 words.
    Valid: any features. The whole is given length 1 by the normalization l2; no signed square root in the reference
    (``--normalize l2``). Matrix functions are refused: the rows are differences, there is no symmetric matrix.
    Cost: 4 n K d operations.

    Args:
        num_words: K.
        alpha: how sharply features are assigned to words at the start; 0: chosen as above.
        per_word: training locations for each word.
        seed: of the sample and of k-means.
    """

    def __init__(
        self,
        inputs: tuple[Shape, ...],
        num_words: int = NUM_WORDS,
        alpha: float = 0.0,
        per_word: int = PER_WORD,
        seed: int = 0,
    ):
        super().__init__()
        check_counts("netvlad", num_words=num_words, per_word=per_word)
        if not 0 <= alpha < math.inf:
            raise ValueError(f"netvlad: expected `alpha` to be a number >= 0, got {alpha!r}.")
        channels = channels_of("netvlad", inputs)
        self.alpha, self.num_points, self.seed = alpha, num_words * per_word, seed
        self.weight = nn.Parameter(torch.zeros(num_words, channels))
        self.bias = nn.Parameter(torch.zeros(num_words))
        self.centres = nn.Parameter(torch.zeros(num_words, channels))

    def shape(self, *inputs: Shape) -> Matrix:
        """The result has a row per word and a column per channel."""
        return Matrix(len(self.centres), channels_of("netvlad", inputs))

    @torch.no_grad()
    def fit(self, batches: Batches) -> None:
        """The centres of a sample of all locations, each of length 1, and the alpha that suits them."""
        sample = words.sample_points("netvlad", batches, self.num_points, seed=self.seed, least=len(self.centres))
        points = l2_normalize(torch.from_numpy(sample))
        centres = words.find_centres(points.numpy(), len(self.centres), self.seed).double()
        alpha = self.alpha or choose_alpha(points.double(), centres)
        self.centres.copy_(centres)
        self.weight.copy_(2 * alpha * centres)
        self.bias.copy_(-alpha * centres.square().sum(-1))
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """Return the rows V_k, shape (B, K, d)."""
        self.check_fitted()
        X, w = as_points("netvlad", features, layout=layout, mask=mask)
        with full_precision(X):
            X = l2_normalize(X)
            wide = X.to(widest(X))  # w and b are large and nearly cancel
            weight, bias, centres = (p.to(wide) for p in (self.weight, self.bias, self.centres))
            a = (wide @ weight.mT + bias).softmax(-1) * w[..., None]  # (B, n, K)
            V = (a.mT @ wide - a.sum(-2)[..., None] * centres).to(X.dtype)
        return l2_normalize(V)


def choose_alpha(points: Tensor, centres: Tensor) -> float:
    """-ln(0.01) / mean(d_2^2 - d_1^2), with the distances of points (m, d) to their two nearest centres."""
    if len(centres) < 2:
        return 1.0  # one word has every feature, whatever alpha is
    parts = [squared_distances(some, centres).topk(2, largest=False).values for some in points.split(4096)]
    nearest, second = torch.cat(parts).unbind(-1)
    return -math.log(_SECOND) / max(float((second - nearest).mean()), 1e-9)
