"""Whole sets of options for fine-tuning, by name; an option that is given goes before that of the recipe.

"paper" is what the paper says (Sec. 3.2, "Training and evaluation") and, where it says nothing, what the authors'
released MATLAB scripts do, as they stand in public forks (`run_experiments_bcnn_train.m`, `imdb_bcnn_train_dag.m`,
`initializeNetworkSharedWeights.m` and, of the improved network, `initializeNonlinearMatrixLayer.m`):

- epochs 100: the paper says 50 to 100, the scripts numEpochs 100.
- lr 0.001: the paper; momentum 0.9: the scripts; weight_decay 0.0005: MatConvNet's default, which they leave alone.
- batch_size 64: the scripts, for networks of VGG-M's size.
- lr_scale scorer=1000, decay_scale scorer=0: the scripts give the last layer, its bias included, a thousand
  times the learning rate and no weight decay.
- init_c 10: the scripts start the last layer by 300 epochs of descent without weight decay, which end far from its
  minimum. `benchmarks/authors_start.py` does the same; C = 10 comes nearest in loss and length of the weights.
- val_share 0: the scripts train on all training images and keep the last epoch.

"ours" holds out images to choose the epoch by, and has one learning rate for all layers; docs/finetuning.md compares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import unknown_name

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "ours": {},  # the defaults of `FinetuneConfig`
    "paper": {
        "epochs": 100,
        "lr": 0.001,
        "momentum": 0.9,
        "batch_size": 64,
        "weight_decay": 5e-4,
        "schedule": "constant",
        "lr_scale": ("scorer=1000",),
        "decay_scale": ("scorer=0",),
        "init_c": 10.0,
        "val_share": 0.0,
    },
}
DEFAULT_RECIPE = "ours"


def with_recipe(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe, changed by those that are given."""
    if name not in RECIPES:
        raise unknown_name("finetune", "recipe", name, RECIPES)
    return {**RECIPES[name], **given}
