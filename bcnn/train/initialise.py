"""The start of fine-tuning: logistic regression on what the network says before it.

Paper: Sec. 3.2, "This layer is initialized using logistic regression after which the entire network is trained".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container

from ..classify.fit import fit_classifier
from ..data.contract import TRAIN
from ..features.folder import Features
from ..features.team import Team
from ..models.bcnn import BCNN, with_scorer


def initialise(
    model: BCNN,
    features: Features,
    names: Container[str],
    *,
    c: float,
    team: Team,
    tick: Callable[[str, int, int], None],
) -> BCNN:
    """A copy of the network with a scorer that starts from a logistic regression on its own descriptors.

    Args:
        model: without a scorer.
        features: its descriptors.
        names: the images to fit to; those for validation are not among them.
        c: the C of the logistic regression.
        team: whose leader computes it for all.
        tick: hears of progress.
    """
    start = with_scorer(copy.deepcopy(model), len(features.classes))
    if not start.scorer.can_start:  # type: ignore[union-attr]
        return start
    matrix = features.matrix(TRAIN, names)

    def fit() -> tuple[object, object]:
        fitted = fit_classifier(
            matrix, matrix.labels, len(features.classes), kind="logistic", C=c, calibrate=False, tick=tick
        )
        return fitted.weight, fitted.bias

    weight, bias = team.lead(fit)
    start.scorer.start_from(weight, bias)  # type: ignore[union-attr, operator]
    return start
