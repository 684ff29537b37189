r"""One-vs-rest classifiers brought to one scale, each by its own training scores.

.. math:: s_c \leftarrow \frac{s_c - m^-_c}{m^+_c - m^-_c}

with m+ and m- the medians of the scores that classifier c gives to its own class and to the others. SVMs that were
trained apart need not agree on what a score means: an easy one separates its class by a wide margin, and wins where a
neighbour should.

Paper: not in its text; the authors' released scripts do so before they compare scores.

Legend: K Gram matrix (n, n); beta weights as combinations of the samples (n, k); m+, m- medians (k,).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .kernel import Kernel

Rescale = Callable[[Kernel, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def by_medians(K: Kernel, labels: Tensor, beta: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Beta and bias of the rescaled classifiers; one whose medians are the wrong way round stays as it is."""
    width, low = widths_of(K @ beta + bias, labels)
    return beta / width, (bias - low) / width


def widths_of(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """m+ - m- and m- of scores (n, k), each of shape (k,); 1 and 0 where the medians are the wrong way round."""
    own = labels[:, None] == torch.arange(scores.shape[1])
    high, low = _medians(scores, own), _medians(scores, ~own)
    usable = high - low > 1e-12 * scores.abs().amax()
    low = torch.where(usable, low, 0.0)
    return torch.where(usable, high - low, 1.0), low


def _medians(scores: Tensor, counted: Tensor) -> Tensor:
    """Of each column the median of what counts; some columns at a time, since torch's quantiles take 16 million."""
    width = max(1, 2**23 // max(len(scores), 1))
    parts = [
        torch.where(c, s, torch.nan).nanquantile(0.5, dim=0)
        for s, c in zip(scores.split(width, 1), counted.split(width, 1), strict=True)
    ]
    return torch.cat(parts)


def unchanged(K: Kernel, labels: Tensor, beta: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As they are."""
    return beta, bias


RESCALES: dict[str, Rescale] = {"none": unchanged, "median": by_medians}
