r"""Fisher vectors of CNN features.

Paper: not in it. Perronnin et al. 2010 (the improved Fisher vector); Cimpoi et al. 2015 (FV-CNN), whose settings these
are: 64 Gaussians, 1000 points each, no PCA, the last convolution without its ReLU.
"""

from __future__ import annotations

from torch import Tensor

from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Matrix, Shape
from .contract import Pooling
from .mixture import Mixture
from .words import NUM_WORDS, PER_WORD, as_points, channels_of, check_counts, sample_points


class FisherPool(Pooling, FittedPart):
    r"""How a mixture of Gaussians would have to change to fit the features of an image better.

    .. math::
        u_k = \frac{1}{n \sqrt{\pi_k}} \sum_{i=1}^n q_{ik} \frac{x_i - \mu_k}{\sigma_k}, \qquad
        v_k = \frac{1}{n \sqrt{2 \pi_k}} \sum_{i=1}^n q_{ik} \Big[ \frac{(x_i - \mu_k)^2}{\sigma_k^2} - 1 \Big]

    with q the posteriors of the Gaussians. Row k of the result, K x 2d, is [u_k, v_k]. Followed by the signed square
    root and l2 it is the improved Fisher vector. The mixture is fitted on a random sample of the training images'
    locations, by scikit-learn, and learns with the network in fine-tuning, through the posteriors as well.

    Reference: Perronnin, Sanchez, Mensink, ECCV 2010; Cimpoi, Maji, Vedaldi, CVPR 2015.
    Valid: any features; cut the network before its last ReLU for the reference's own (``--cut conv5_3`` of vgg16).
    Matrix functions are refused: the rows are gradients, there is no symmetric matrix.
    Cost: about 8 n K d operations in float64.

    Args:
        num_words: Gaussians, K.
        per_word: training locations for each of them.
        floor: is added to every variance, relative to the largest variance of a channel. The reference takes it as the
            least variance instead.
        seed: of the sample and of k-means, from which the mixture starts.
    """

    def __init__(
        self,
        inputs: tuple[Shape, ...],
        num_words: int = NUM_WORDS,
        per_word: int = PER_WORD,
        floor: float = 1e-4,
        seed: int = 0,
    ):
        super().__init__()
        check_counts("fisher", num_words=num_words, per_word=per_word)
        self.num_points, self.floor, self.seed = num_words * per_word, floor, seed
        self.mixture = Mixture(num_words, channels_of("fisher", inputs))

    def shape(self, *inputs: Shape) -> Matrix:
        """The result has a row per Gaussian and two numbers per channel."""
        return Matrix(len(self.mixture.mu), 2 * channels_of("fisher", inputs))

    def fit(self, batches: Batches) -> None:
        """Fit the mixture to a sample of all locations."""
        points = sample_points("fisher", batches, self.num_points, seed=self.seed, least=len(self.mixture.mu))
        self.mixture.fit(points, floor=self.floor, seed=self.seed)
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """Return the rows [u_k, v_k], shape (B, K, 2 d)."""
        self.check_fitted()
        return self.mixture.fisher_vector(*as_points("fisher", features, layout=layout, mask=mask))
