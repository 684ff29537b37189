"""A part before the network that cuts an image in two."""

import pytest
import torch
from torch import nn

import bcnn
from bcnn.fronts import FRONTS
from bcnn.fronts.contract import Front
from bcnn.parts.registry import Part

from .walk import SHORT, predict, train


class Halves(Front):
    """The left and the right half, brighter by a factor that is learned.

    Args:
        start: the factor at the beginning.
    """

    num_crops = 2

    def __init__(self, start: float = 1.0):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(start))

    def forward(self, images):
        middle = images.shape[-1] // 2
        return self.factor * torch.stack([images[..., :middle], images[..., -middle:]], 1)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(FRONTS, "halves", Part(Halves, "the left and the right half"))


def test_built():
    torch.manual_seed(0)
    model = bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, front="halves(start=2)")
    images = torch.rand(2, 3, 32, 32)
    whole = bcnn.describe(model.backbone(2 * images[..., :16]), "bcnn")
    assert torch.equal(model.describe(images)[:, :528], whole)
    assert model.descriptor_length == 2 * 528
    model(images).sum().backward()
    assert model.front.factor.grad.isfinite()


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--front", "halves(start=1.5)", *more)
    assert metrics["descriptor_length"] == 2 * 528
    factor = bcnn.load(tmp_path / "run" / "model.safetensors").front.factor
    assert (factor == 1.5) == (not more)  # it learns
    predict(pictures, tmp_path / "run")


def test_another_one_put_in_its_place_is_what_is_saved(tmp_path):
    model = bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, front="halves(start=2)")
    model.front = FRONTS.make("halves(start=7)")
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    assert again.config.front == "halves(start=7.0)"
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(again(images), model(images))
