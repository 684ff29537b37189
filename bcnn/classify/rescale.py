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

Rescale = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def by_medians(K: Tensor, labels: Tensor, beta: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Beta and bias of the rescaled classifiers; one whose medians are the wrong way round stays as it is."""
    scores = K @ beta + bias  # (n, k)
    own = labels[:, None] == torch.arange(beta.shape[1])
    high = torch.where(own, scores, torch.nan).nanquantile(0.5, dim=0)
    low = torch.where(own, torch.nan, scores).nanquantile(0.5, dim=0)
    usable = high - low > 1e-12 * scores.abs().amax()
    low = torch.where(usable, low, 0.0)
    width = torch.where(usable, high - low, 1.0)
    return beta / width, (bias - low) / width


def unchanged(K: Tensor, labels: Tensor, beta: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """As they are."""
    return beta, bias


RESCALES: dict[str, Rescale] = {"none": unchanged, "median": by_medians}
