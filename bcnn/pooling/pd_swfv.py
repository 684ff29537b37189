r"""PD+SWFV: parts are found without annotations, and Fisher vectors look where the parts are.

Paper: Table 4, "PD+SWFV-CNN" and "PD+FC+SWFV-CNN". Zhang et al., "Picking deep filter responses for fine-grained image
recognition", CVPR 2016.

Simpler than the original, of which no code is public:

- The proposals for parts are the locations of an image with the longest features, not regions of selective search
  that go through the network again. That takes one pass over the training images.
- A detector is a logistic regression on features of length 1; the original takes linear SVMs.
- One network at one scale gives parts, weights and Fisher vector.
- "FC", the features that fully connected layers give of detected parts, is the convolutional feature at the best
  location of every part (``parts=True``), for networks here end with a convolution.
- The numbers of parts, proposals and rounds are ours.

Legend: X points (B, n, d); w their weights (B, n); r responses of the detectors (B, n, P).
"""

from __future__ import annotations

import numpy
import torch
from torch import Tensor, nn

from ..linalg.autodiff import full_precision
from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Shape, Vector
from .contract import Pooling
from .mixture import Mixture
from .normalize import DEFAULT_LENGTH, l2_normalize
from .words import NUM_WORDS, PER_WORD, Reservoir, as_points, channels_of, check_counts

NUM_NEGATIVES = 2000  # locations that detectors learn to tell parts from
SHARE = 0.5  # of the images, those in which a part is found best, give its positives


class PickedFisherPool(Pooling, FittedPart):
    r"""A Fisher vector with locations weighted by what part detectors say of them.

    .. math:: w_i \propto \sum_{p=1}^P \sigma(w_p^T x_i / \|x_i\| + b_p)

    1. Filters (channels) are picked that respond strongly and consistently: those whose largest response per image, in
       standard deviations over all locations, has the largest mean minus standard deviation over the training images.
    2. Each becomes a part detector by alternation: positives are the proposals with the largest response, one per
       image, from the better half of the images; a classifier learns to tell them from random locations; it then says
       itself where its positives are.
    3. The Fisher vector's 1/n is replaced by the weights w, whose sum is 1; equal weights give the plain one.

    With ``parts=True`` (PD+FC+SWFV) the features of the best locations of all parts, each of length 1, follow. Either
    half is divided by the sum of its magnitudes, so that both have length 1 after the signed square root.

    Reference: Zhang, Xiong, Zhou, Lin, Tian, CVPR 2016; the docstring of the module says what is simpler here.
    Valid: any features. The mixture and the detectors learn in fine-tuning; the best locations have no derivative.
    Matrix functions are refused: there is no symmetric matrix.
    Cost: that of `fisher`, and 2 n P d operations; fitting takes one pass over the training images.

    Args:
        num_words: Gaussians.
        num_parts: filters that are picked, P.
        parts: whether the features of the parts follow the Fisher vector.
        num_proposals: locations per image among which parts are looked for.
        num_rounds: how often positives are mined anew.
        per_word: training locations for each Gaussian.
        floor: is added to every variance, relative to the largest variance of a channel.
        seed: of the samples and of k-means.
    """

    filters: Tensor

    def __init__(  # noqa: PLR0913 - its options, each under its own name
        self,
        inputs: tuple[Shape, ...],
        num_words: int = NUM_WORDS,
        num_parts: int = 16,
        parts: bool = False,
        num_proposals: int = 16,
        num_rounds: int = 3,
        per_word: int = PER_WORD,
        floor: float = 1e-4,
        seed: int = 0,
    ):
        super().__init__()
        who, channels = "pd_swfv", channels_of("pd_swfv", inputs)
        check_counts(
            who, num_words=num_words, num_parts=num_parts, num_proposals=num_proposals, num_rounds=num_rounds,
            per_word=per_word,
        )  # fmt: skip
        if num_parts > channels:
            raise ValueError(f"{who}: expected `num_parts` up to {channels}, a filter for each, got {num_parts}.")
        self.parts, self.num_proposals, self.num_rounds = parts, num_proposals, num_rounds
        self.num_points, self.floor, self.seed = num_words * per_word, floor, seed
        self.mixture = Mixture(num_words, channels)
        self.detectors = nn.Linear(channels, num_parts)
        nn.init.zeros_(self.detectors.weight)
        nn.init.zeros_(self.detectors.bias)
        self.register_buffer("filters", torch.zeros(num_parts, dtype=torch.long))  # those that were picked

    def shape(self, *inputs: Shape) -> Vector:
        """The Fisher vector and, if wanted, a feature per part."""
        channels = channels_of("pd_swfv", inputs)
        return Vector(channels * (2 * len(self.mixture.mu) + self.parts * len(self.detectors.bias)))

    @torch.no_grad()
    def fit(self, batches: Batches) -> None:
        """Pick filters, mine parts, fit the mixture; in one pass over the images."""
        sample = Reservoir(self.num_points, self.seed)
        negatives = Reservoir(NUM_NEGATIVES, self.seed + 1)
        peaks, proposals, moments = [], [], []
        for (features,) in batches():
            X, _ = as_points("pd_swfv", features)
            sample.add(X)
            negatives.add(X)
            longest = X.norm(dim=-1).topk(min(self.num_proposals, X.shape[1])).indices  # (B, M)
            proposals.append(X.take_along_dim(longest[..., None], 1).cpu())
            peaks.append(X.amax(1).cpu())
            wide = X.double() if X.device.type != "mps" else X
            moments.append(torch.stack([wide.mean((0, 1)), wide.square().mean((0, 1))]).cpu() * len(X))
        points = sample.points("pd_swfv", len(self.mixture.mu))
        mean, square = torch.stack(moments).sum(0) / sum(map(len, peaks))
        deviation = (square - mean.square()).clamp_min(0).sqrt()
        filters = pick_filters(torch.cat(peaks), mean, deviation, len(self.filters))
        found = mine_parts(
            torch.cat(proposals), filters, negatives.points("pd_swfv", 1), num_rounds=self.num_rounds, seed=self.seed
        )
        self.filters.copy_(filters)
        self.detectors.weight.copy_(found[:, :-1])
        self.detectors.bias.copy_(found[:, -1])
        self.mixture.fit(points, floor=self.floor, seed=self.seed)
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """The weighted Fisher vector, and the parts if wanted, shape (B, 2 K d + P d)."""
        self.check_fitted()
        X, w = as_points("pd_swfv", features, layout=layout, mask=mask)
        with full_precision(X):
            unit = l2_normalize(X)
            r = unit @ self.detectors.weight.to(X).mT + self.detectors.bias.to(X)  # (B, n, P)
            swfv = self.mixture.fisher_vector(X, location_weights(r, w)).flatten(1)
            if not self.parts:
                return swfv
            best = r.masked_fill((w == 0)[..., None], -torch.inf).argmax(1)  # (B, P)
            parts = unit.take_along_dim(best[..., None], 1).flatten(1)
            return torch.cat([_of_sum_one(swfv), _of_sum_one(parts)], -1)


def location_weights(r: Tensor, w: Tensor) -> Tensor:
    """How much every location counts, shape (B, n), their sum 1: the probabilities of all parts there, summed.

    Args:
        r: responses of the detectors, shape (B, n, P).
        w: equal weights of the valid locations, shape (B, n).
    """
    total = r.sigmoid().sum(-1) * w
    return total / total.sum(-1, keepdim=True).clamp_min(torch.finfo(total.dtype).tiny)


def pick_filters(peaks: Tensor, mean: Tensor, deviation: Tensor, count: int) -> Tensor:
    """The channels that respond strongly and consistently, best first, shape (count,).

    Args:
        peaks: the largest response per image and channel, shape (images, d).
        mean: of every channel over all locations, shape (d,).
        deviation: likewise.
        count: how many.
    """
    z = (peaks - mean) / deviation.clamp_min(1e-12)
    return (z.mean(0) - z.std(0, correction=0)).topk(count).indices


def mine_parts(
    proposals: Tensor, filters: Tensor, negatives: numpy.ndarray, *, num_rounds: int, seed: int = 0
) -> Tensor:
    """Weights and bias of a detector per filter, shape (P, d + 1), by mining positives and learning in turn.

    Args:
        proposals: features of every image's proposals, shape (images, M, d).
        filters: channels that say where the first positives are, shape (P,).
        negatives: features of random locations, shape (m, d).
        num_rounds: how often positives are mined.
        seed: of the classifier.
    """
    from sklearn.linear_model import LogisticRegression

    count = max(1, round(SHARE * len(proposals)))
    unit, others = l2_normalize(proposals), l2_normalize(torch.from_numpy(negatives))
    labels = numpy.repeat([1, 0], [count, len(others)])
    found = []
    for channel in filters:
        responses = proposals[..., channel]  # (images, M)
        for _ in range(num_rounds):
            best, where = responses.max(-1)
            images = best.topk(count).indices
            points = torch.cat([unit[images, where[images]], others])
            own = LogisticRegression(C=10.0, class_weight="balanced", max_iter=1000, random_state=seed)
            own.fit(points.double().numpy(), labels)
            detector = torch.from_numpy(numpy.append(own.coef_[0], own.intercept_))
            responses = unit.double() @ detector[:-1] + detector[-1]
        found.append(detector)
    return torch.stack(found)


def _of_sum_one(x: Tensor) -> Tensor:
    """Divided by the sum of magnitudes, which is the squared length of the signed square root."""
    return x / x.abs().sum(-1, keepdim=True).clamp_min(DEFAULT_LENGTH)
