"""The networks of a run, from its configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..data.contract import Dataset
from ..features.extract import for_dataset, with_head
from ..models.bcnn import BCNN, build_model
from ..pooling.head import make_config
from .config import RunConfig


def networks(config: RunConfig, dataset: Dataset, **report: Any) -> dict[str, BCNN]:
    """One network a preset; all share the backbone."""
    import torch

    torch.manual_seed(config.seed)  # of random weights and projections
    first = build_model(
        config.preset[0],
        backbone=config.backbone,
        weights=config.weights,
        layer=config.layer,
        proj_dim=config.proj_dim,
        image_size=config.size,
        **config.head_options(config.preset[0]),
        **report,
    )
    base = _prepared(first, dataset)
    return {preset: with_head(base, make_config(preset, **config.head_options(preset))) for preset in config.preset}


def _prepared(model: BCNN, dataset: Dataset) -> BCNN:
    model.config = replace(model.config, preprocessing=for_dataset(model.config.preprocessing, dataset))
    return model
