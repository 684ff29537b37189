"""The networks of a run, from its configuration."""

from __future__ import annotations

from typing import Any

import torch

from ..data.contract import Dataset
from ..descriptors.extract import for_dataset
from ..models.bcnn import BCNN, with_head, with_scorer
from ..models.build import build_model
from ..parts.text import split
from .config import RunConfig


def networks(config: RunConfig, dataset: Dataset, **report: Any) -> dict[str, BCNN]:
    """One network per preset; all share front and branches."""
    torch.manual_seed(config.seed)  # of random weights and projections
    base = build_model(
        config.head(config.preset[0]),
        backbone=split(config.backbone),
        weights=config.weights,
        cut=config.cut,
        proj_dim=config.proj_dim,
        size=config.size,
        front=config.front,
        scorer=config.scorer,
        **report,
    )
    base.set_geometry(for_dataset(base.preprocessing, dataset))

    def of(preset: str) -> BCNN:
        torch.manual_seed(config.seed)  # of its own parts, whatever presets stand beside it
        model = with_head(base, config.head(preset))
        if config.scorer != "linear":
            with_scorer(model, 2)  # one that does not fit is refused now, not after all images are described
        return model

    return {preset: of(preset) for preset in config.preset}
