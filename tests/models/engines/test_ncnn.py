"""Convolutions by ncnn against torch's in float64, and what is left to others."""

import sys

import pytest
import torch
from torch import nn

from bcnn.descriptors.extract import ExtractOptions
from bcnn.models.engines import ncnn, usable, using, winograd
from tests.models.engines.test_winograd import close, network

needs_ncnn = pytest.mark.skipif("ncnn" not in usable(), reason="ncnn is not installed")

SHAPES = {"even": (2, 3, 48, 64), "odd": (3, 3, 45, 51), "narrow": (1, 3, 60, 5), "none": (0, 3, 20, 20)}


def rows_of_layers(*, bias: bool = True) -> nn.Sequential:
    """Two runs with poolings that halve, and one with another pooling and padding."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1, bias=bias), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, padding=1, bias=bias), nn.ReLU(inplace=True), nn.MaxPool2d(2, stride=2),
        nn.Conv2d(64, 80, 3, padding=1, bias=bias), nn.ReLU(),
        nn.Conv2d(80, 64, 3, padding=1), nn.MaxPool2d(2, stride=2),
        nn.Conv2d(64, 64, 3, padding=(1, 2)), nn.ReLU(), nn.MaxPool2d(1, stride=1),
    ).eval()  # fmt: skip


@needs_ncnn
@pytest.mark.parametrize("strip", [1, 2**14, 2**30], ids=["fewest rows", "few rows", "whole images"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@torch.inference_mode()
def test_agrees_with_torch(monkeypatch, shape, bias, strip):
    monkeypatch.setattr(ncnn, "STRIP_BYTES", strip)
    layers, images = rows_of_layers(bias=bias), torch.randn(shape)
    result = ncnn.run(layers, images)
    assert close(result, layers.double()(images.double()))


@needs_ncnn
@torch.no_grad()
def test_runs_are_found():
    taken = [isinstance(step, ncnn.Run) for step in ncnn._steps(rows_of_layers())]
    assert taken == [True, True, True]
    layers = network()  # with a 5 x 5, batch normalisation, and pooling of other kinds
    assert [type(step).__name__ for step in ncnn._steps(layers)].count("Run") == 4
    images = torch.randn(3, 3, 50, 43)
    result = ncnn.run(layers, images)
    assert not torch.equal(result, winograd.run(layers, images))
    assert close(result, layers.double()(images.double()))


@needs_ncnn
@torch.no_grad()
def test_changed_weights_are_seen():
    layers, images = rows_of_layers(), torch.randn(1, 3, 30, 30)
    ncnn.run(layers, images)
    layers[7].weight.mul_(2)
    layers[5].bias.add_(1)
    assert close(ncnn.run(layers, images), layers.double()(images.double()))


@needs_ncnn
@torch.no_grad()
@pytest.mark.parametrize("where", ["weights", "images"])
def test_nan_stays_nan(where):
    layers, images = rows_of_layers(), torch.zeros(1, 3, 24, 24)
    if where == "weights":
        layers[2].weight[3, 4, 1, 1] = torch.nan
    else:
        images[0, 1, 12, 12] = torch.nan
    assert ncnn.run(layers, images).isnan().any()


@needs_ncnn
@torch.no_grad()
def test_hooks_are_heard():
    layers, images, heard = rows_of_layers(), torch.randn(1, 3, 30, 30), []
    layers[1].register_forward_hook(lambda module, inputs, output: heard.append(output))
    result = ncnn.run(layers, images)
    assert len(heard) == 1
    assert close(result, layers.double()(images.double()))


@needs_ncnn
@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_numbers_are_left_to_torch(kind):
    layers, images = rows_of_layers().to(kind), torch.randn(1, 3, 24, 24, dtype=kind)
    with torch.inference_mode():
        assert torch.equal(ncnn.run(layers, images), layers(images))


@needs_ncnn
def test_maps_that_are_too_small():
    layers = nn.Sequential(nn.Conv2d(64, 64, 3), nn.ReLU())
    with torch.no_grad(), pytest.raises((ValueError, RuntimeError)):
        ncnn.run(layers, torch.randn(1, 64, 2, 2))


def test_a_missing_package_is_told_before_the_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "ncnn", None)
    assert "ncnn" not in usable()
    with pytest.raises(ImportError, match=r"expected the package ncnn.*pip install 'bcnn\[ncnn\]'.*--engine winograd"):
        ExtractOptions(engine="ncnn")
    with pytest.raises(ImportError, match="expected the package ncnn"), using("ncnn"):
        pass
