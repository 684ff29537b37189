"""From a dataset to a classifier and back: what `bcnn train`, `predict` and `evaluate` do."""
