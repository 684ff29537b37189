"""The start of fine-tuning: logistic regression on what the network says before it.

Paper: Sec. 3.2, "This layer is initialized using logistic regression after which the entire network is trained".
"""

from __future__ import annotations

import copy
from collections.abc import Container

from torch import Tensor

from ..classify.fit import fit_classifier
from ..data.contract import TRAIN
from ..descriptors.folder import Descriptors
from ..descriptors.team import Team
from ..models.bcnn import BCNN, start_scorer, with_scorer
from ..progress import Progress, within


def initialise(
    model: BCNN, descriptors: Descriptors, names: Container[str], *, c: float, team: Team, progress: Progress
) -> BCNN:
    """A copy of the network with a scorer that starts from a logistic regression with C = `c` on its own descriptors.

    It is fitted to the images of these names, which are not held out, by the leader of the team for all processes.
    """
    start = with_scorer(copy.deepcopy(model), len(descriptors.classes))
    if not start.scorer.can_start:  # type: ignore[union-attr]
        return start
    matrix = descriptors.matrix(TRAIN, names)

    def fit() -> tuple[Tensor, Tensor]:
        fitted = fit_classifier(
            matrix, matrix.labels, len(descriptors.classes), kind="logistic", C=c, calibrate=False,
            progress=within(progress, "logistic regression, "),
        )  # fmt: skip
        return fitted.weight, fitted.bias

    weight, bias = team.lead(fit)
    start_scorer(start, weight, bias, matrix.parts())
    return start
