"""Recipes: whole sets of options by name."""

from dataclasses import fields

import pytest

from bcnn.finetune.config import FinetuneConfig
from bcnn.finetune.recipes import RECIPES
from bcnn.runs.config import from_options, to_plain


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_made_of_options(name):
    assert set(RECIPES[name]) <= {field.name for field in fields(FinetuneConfig)}
    FinetuneConfig(**RECIPES[name])


def test_options_that_are_given_go_first():
    config = from_options({"spec": "textures", "finetune": True, "recipe": "paper", "epochs": 7}).finetune
    assert (config.epochs, config.batch_size, config.factors("lr_scale")) == (7, 64, {"scorer": 1000.0})
    assert config.factors("decay_scale") == {"scorer": 0.0}


def test_what_a_recipe_decides_is_written_down():
    plain = to_plain(from_options({"spec": "textures", "finetune": True, "recipe": "paper"}))
    assert plain["epochs"] == 100
    assert plain["lr_scale"] == ["scorer=1000"]
    assert "recipe" not in plain  # the numbers are: a recipe may change


def test_ours_is_the_default():
    given = {"spec": "textures", "finetune": True}
    assert from_options({**given, "recipe": "ours"}) == from_options(given)


def test_a_recipe_needs_fine_tuning():
    with pytest.raises(ValueError, match="recipe needs finetune"):
        from_options({"spec": "textures", "recipe": "paper"})
    with pytest.raises(ValueError, match=r"unknown recipe 'papre'.*did you mean 'paper'"):
        from_options({"spec": "textures", "finetune": True, "recipe": "papre"})
