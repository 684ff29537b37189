"""A pooling to a vector, with random numbers as its state."""

import pytest
import torch

import bcnn
from bcnn.parts.registry import Part
from bcnn.parts.shapes import Vector, expect_maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.contract import Pooling
from bcnn.pooling.features import as_columns

from .walk import SHORT, predict, train


class RandomMoments(Pooling):
    """Mean products of two random combinations of the channels.

    Args:
        width: how many products.
        seed: of the combinations.
    """

    def __init__(self, inputs, width: int = 20, seed: int = 0):
        super().__init__()
        (maps,) = expect_maps("random_moments", inputs, 1)
        generator = torch.Generator().manual_seed(seed)
        self.width = width
        self.register_buffer("signs", torch.randn(2, width, maps.channels, generator=generator).sign())

    def shape(self, *inputs):
        expect_maps("random_moments", inputs, 1)
        return Vector(self.width)

    def forward(self, features, *, layout="maps", mask=None):
        X = as_columns("random_moments", features, layout=layout, mask=mask)
        first, second = self.signs.to(X)
        return ((first @ X) * (second @ X)).sum(-1)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(POOLINGS, "random_moments", Part(RandomMoments, "mean products of random combinations"))


def test_built():
    assert bcnn.Head("bcnn", 8, pooling="random_moments(width=30)").out == Vector(30)
    features = torch.rand(2, 8, 5, 5, dtype=torch.float64, requires_grad=True)
    head = bcnn.Head("bcnn", 8, pooling="random_moments", width=7)
    assert torch.autograd.gradcheck(lambda x: head.pooling(x), (features,))
    assert bcnn.describe(features, "bcnn", pooling="random_moments").shape == (2, 20)
    with pytest.raises(ValueError, match=r"random_moments has to know the channels .*channels=512"):
        bcnn.Head("bcnn", pooling="random_moments")
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric .* got a vector of 20 numbers"):
        bcnn.Head("improved_bcnn", 8, pooling="random_moments")


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--pooling", "random_moments(width=30)", *more)
    assert metrics["descriptor_length"] == 30
    model = bcnn.load(tmp_path / "run" / "model.safetensors")
    assert model.head.pooling.signs.shape == (2, 30, 32)
    predict(pictures, tmp_path / "run")
