"""What holds for all engines, and the way to them."""

import numpy as np
import pytest
import torch

from bcnn.data.preprocess import Preprocessing
from bcnn.models import engines
from bcnn.models.backbones import make_backbone
from bcnn.models.engines import ENGINES, usable, using
from bcnn.models.views import in_views

HERE = [pytest.param(name, marks=pytest.mark.skipif(name not in usable(), reason="not installed")) for name in ENGINES]


@pytest.mark.parametrize("engine", HERE)
@pytest.mark.parametrize("name", ["alexnet", "vgg16", "tiny", "mobilenet_v2"])
@torch.inference_mode()
def test_maps_are_those_of_torch(engine, name):
    torch.manual_seed(0)
    backbone, images = make_backbone(name).eval(), torch.randn(2, 3, 70, 90)
    expected = backbone(images)
    with using(engine):
        maps = backbone(images)
    assert maps.shape == expected.shape
    assert (maps - expected).norm() <= 1e-5 * expected.norm()
    if name in ("tiny", "mobilenet_v2"):  # no engine does better
        assert torch.equal(maps, expected)


@pytest.mark.parametrize("engine", HERE)
def test_training_is_torchs(engine):
    backbone, images = make_backbone("alexnet"), torch.randn(1, 3, 64, 64)
    expected = backbone(images)
    with using(engine):
        maps = backbone(images)
        maps.sum().backward()
    assert torch.equal(maps, expected)
    assert all(parameter.grad is not None for parameter in backbone.parameters())


@torch.no_grad()
def test_views_take_the_engine():
    torch.manual_seed(0)
    backbone = make_backbone("alexnet").eval()
    pictures = list(np.random.default_rng(0).integers(0, 255, (2, 64, 64, 3), dtype=np.uint8))
    fast, plain = (
        in_views(pictures, Preprocessing(size=64), lambda x: [backbone(x)], flips=True, engine=engine)[0]
        for engine in ("winograd", "torch")
    )
    assert fast.shape == plain.shape == (2, 2, 256, 3, 3)
    assert not torch.equal(fast, plain)
    assert (fast - plain).norm() <= 1e-5 * plain.norm()


def test_an_engine_ends_with_its_block():
    with pytest.raises(KeyError), using("winograd"):
        raise KeyError
    assert engines._chosen.get() == "torch"


def test_unknown_engine():
    with pytest.raises(ValueError, match=r"unknown engine 'winogard'.*did you mean 'winograd'"), using("winogard"):
        pass
