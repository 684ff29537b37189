r"""VLAD: what is left of features when the nearest of a few words is taken away.

Paper: not in it. Jegou et al. 2010; normalized word by word after Arandjelovic and Zisserman 2013.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..linalg.autodiff import full_precision
from ..linalg.spectrum import widest
from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Matrix, Shape
from . import words
from .contract import Pooling
from .normalize import l2_normalize
from .words import NUM_WORDS, PER_WORD, as_points, channels_of, check_counts, squared_distances


class VladPool(Pooling, FittedPart):
    r"""The mean difference between features and the nearest word, for every word.

    .. math:: V_k = \frac1n \sum_{i:\, k = \arg\min_j \|x_i - c_j\|} (x_i - c_k)

    The words c_k are the centres of k-means (scikit-learn) on a random sample of the training images' locations. Which
    word is nearest has no derivative; the features have one. The references sum where this divides by n, which l2
    takes away.

    Reference: Jegou, Douze, Schmid, Perez, CVPR 2010; Arandjelovic, Zisserman, CVPR 2013 (`intra`); 64 words as in
    Cimpoi, Maji, Vedaldi, CVPR 2015.
    Valid: any features. The words stay as they were fitted; `netvlad` has ones that learn. Matrix functions are
    refused: the rows are differences, there is no symmetric matrix.
    Cost: 4 n K d operations in float64.

    Args:
        num_words: K.
        intra: whether every V_k is given length 1 (intra-normalization).
        per_word: training locations for each word.
        seed: of the sample and of k-means.
    """

    centres: Tensor

    def __init__(
        self,
        inputs: tuple[Shape, ...],
        num_words: int = NUM_WORDS,
        intra: bool = True,
        per_word: int = PER_WORD,
        seed: int = 0,
    ):
        super().__init__()
        check_counts("vlad", num_words=num_words, per_word=per_word)
        self.intra, self.num_points, self.seed = intra, num_words * per_word, seed
        self.register_buffer("centres", torch.zeros(num_words, channels_of("vlad", inputs)))

    def shape(self, *inputs: Shape) -> Matrix:
        """The result has a row per word and a column per channel."""
        return Matrix(len(self.centres), channels_of("vlad", inputs))

    def fit(self, batches: Batches) -> None:
        """Find the centres of a sample of all locations."""
        points = words.sample_points("vlad", batches, self.num_points, seed=self.seed, least=len(self.centres))
        self.centres.copy_(words.find_centres(points, len(self.centres), self.seed))
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """Return the rows V_k, shape (B, K, d)."""
        self.check_fitted()
        X, w = as_points("vlad", features, layout=layout, mask=mask)
        with full_precision(X):
            wide, centres = X.to(widest(X)), self.centres.to(widest(X))
            nearest = squared_distances(wide.detach(), centres).argmin(-1)  # (B, n)
            a = torch.nn.functional.one_hot(nearest, len(centres)).to(wide) * w[..., None]
            V = (a.mT @ wide - a.sum(-2)[..., None] * centres).to(X.dtype)
        return l2_normalize(V) if self.intra else V
