"""A wrong value is refused with the field named; every default that the paper gives is the paper's."""

import math

import pytest

from bcnn.finetune.config import HOW, FinetuneConfig


def test_the_papers_values_are_the_defaults():
    config = FinetuneConfig()
    assert config.lr == 0.001
    assert 50 <= config.epochs <= 100
    assert config.schedule == "constant"
    assert config.select_on == "validation"
    assert config.clip is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", 0), ("epochs", 2.5), ("epochs", True), ("lr", 0.0), ("lr", -1.0), ("lr", math.nan), ("lr", "fast"),
        ("momentum", 1.0), ("momentum", -0.1), ("weight_decay", -1e-4), ("batch_size", 0), ("clip", 0.0),
        ("val_share", 1.0), ("val_share", -0.1), ("schedule", "linear"), ("select_on", "train"), ("select_by", "luck"),
        ("on_nonfinite", "ignore"), ("lr_scale", ("conv5",)), ("lr_scale", ("conv5=fast",)), ("lr_scale", ("=2",)),
        ("lr_scale", ("conv5=-1",)), ("init_c", 0.0), ("checkpoint_minutes", -1.0), ("devices", 0), ("nodes", 0),
        ("warmup_epochs", 50.0), ("step_epochs", 0), ("step_factor", 0.0), ("memory_gb", -1.0), ("clip", math.inf),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_name(field, value):
    with pytest.raises(ValueError, match=field):
        FinetuneConfig(**{field: value})


def test_relative_learning_rates():
    assert FinetuneConfig(lr_scale=("conv5=0.1", "scorer = 10")).factors("lr_scale") == {"conv5": 0.1, "scorer": 10.0}


def test_what_changes_the_way_is_a_field():
    assert all(name in FinetuneConfig.__dataclass_fields__ for name in HOW)
