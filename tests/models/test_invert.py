"""Pictures by running a network backwards: the prior, the layers, the losses, and that they fall."""

import math

import numpy as np
import pytest
import torch

import bcnn
from bcnn.models.backbones import make_backbone
from bcnn.models.invert import (
    as_input,
    class_loss,
    invert,
    resolution_ends,
    texture_loss,
    total_variation,
)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, size=32).requires_grad_(False)


def test_total_variation_is_the_mean_squared_difference():
    image = torch.rand(3, 5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = np.square(np.diff(image.numpy(), axis=-1)).mean() + np.square(np.diff(image.numpy(), axis=-2)).mean()
    assert float(total_variation(image)) == pytest.approx(expected, rel=1e-12)
    assert torch.autograd.gradcheck(total_variation, image.requires_grad_())


def test_pixels_become_what_the_network_wants(model):
    from PIL.Image import fromarray

    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    wanted = model.preprocessing(fromarray(pixels))
    torch.testing.assert_close(as_input(torch.tensor(pixels).movedim(-1, 0) / 255, model.preprocessing), wanted)


@pytest.mark.parametrize(
    ("name", "ends"),
    [("vgg16", ["relu1_2", "relu2_2", "relu3_3", "relu4_3", "relu5_3"]), ("alexnet", ["relu1", "relu2", "relu5"]),
     ("resnet50", ["relu1", "res2c", "res3d", "res4f", "res5c"]), ("tiny", ["relu1", "relu2", "relu3"])],
)  # fmt: skip
def test_layers_of_a_texture_are_the_last_of_every_resolution(name, ends):
    assert resolution_ends(make_backbone(name).eval(), 128) == ends


def test_the_loss_of_a_texture_is_the_relative_distance_of_its_matrices(model):
    generator = torch.Generator().manual_seed(0)
    photograph, image = torch.rand(2, 3, 32, 32, generator=generator)
    loss = texture_loss(model, as_input(photograph, model.preprocessing), ["relu2", "descriptor"])
    expected = []
    for own in (image, photograph):
        given = as_input(own, model.preprocessing)[None].double()
        whole = model.double()
        maps = whole.backbone.layers[:4](given)[0].flatten(1)
        expected.append((maps @ maps.mT / maps.shape[1], whole.describe(given)))
    model.float()
    parts = [float((a - b).square().sum() / b.square().sum()) for a, b in zip(*expected, strict=True)]
    assert float(loss(image[None])) == pytest.approx(sum(parts) / 2, rel=1e-4)
    assert float(loss(photograph[None])) < 1e-9
    with pytest.raises(ValueError, match="invert: unknown layer 'relu9'"):
        texture_loss(model, photograph, ["relu9"])


def test_the_loss_of_a_class_is_its_log_probability(model):
    image = torch.rand(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    scores = model(as_input(image, model.preprocessing))
    loss = class_loss(model, model.preprocessing, 2, temperature=0.5)
    assert float(loss(image)) == pytest.approx(-float((scores / 0.5).softmax(-1)[0, 2].log()), rel=1e-5)


def test_losses_fall_tenfold(model):
    photograph = torch.rand(3, 32, 32, generator=torch.Generator().manual_seed(3))
    photograph[:, ::4] = 0  # stripes
    heard = []
    made = invert(
        texture_loss(model, as_input(photograph, model.preprocessing)), 32, prior=0.0, steps=60, seed=0,
        progress=lambda *event: heard.append(event),
    )  # fmt: skip
    assert made.loss < made.first_loss / 10
    assert made.pixels.shape == (3, 32, 32)
    assert 0 <= float(made.pixels.min()) < float(made.pixels.max()) <= 1
    assert [event[1] for event in heard] == [0, 20, 40, 60]
    loss = class_loss(model, model.preprocessing, 1, temperature=0.05)
    made, other = (invert(loss, 32, prior=0.01, steps=40, shift=0.1, seed=seed) for seed in (0, 1))
    assert made.loss < made.first_loss  # of a random scorer, whose scores of any image lie close together
    assert not torch.equal(made.pixels, other.pixels)


def test_two_networks_have_no_one_texture():
    both = bcnn.build_model("bcnn", backbone=["tiny", "tiny"], weights=None, pooling="asymmetric", size=32)
    with pytest.raises(ValueError, match=r"expected a model of one network of bcnn for a photograph, got tiny\+tiny"):
        texture_loss(both, torch.rand(3, 32, 32))


def test_a_loss_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match="expected a finite prior >= 0, got inf"):
        invert(lambda x: x.sum(), 32, prior=math.inf, steps=1)
    with pytest.raises(ArithmeticError, match="expected a finite loss of the image at the start, got nan"):
        invert(lambda images: images.sum() * float("nan"), 32)
