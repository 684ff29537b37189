"""What every backbone promises: its channels, its cut, freezing, clear errors."""

import pytest
import torch
from torch import nn

from bcnn.models.backbones import BACKBONES, make_backbone


@pytest.mark.parametrize("name", BACKBONES)
def test_features_have_the_promised_shape(name):
    backbone = make_backbone(name).eval()
    side = BACKBONES[name].min_size
    with torch.no_grad():
        features = backbone(torch.rand(2, 3, side, 2 * side))
    assert features.shape[:2] == (2, backbone.num_channels)
    assert str(backbone.num_channels) in BACKBONES[name].about
    assert name in repr(backbone)


@pytest.mark.parametrize("name", BACKBONES)
def test_cut_anywhere(name):
    layers = BACKBONES[name].layers()
    for cut in list(layers)[:: max(1, len(layers) // 3)]:
        backbone = make_backbone(name, cut=cut)
        assert list(backbone.layers._modules)[-1] == cut
    with pytest.raises(ValueError, match=f"{name}: unknown layer 'relu9'"):
        make_backbone(name, cut="relu9")


@pytest.mark.parametrize("name", BACKBONES)
def test_freezing_keeps_the_front_and_lets_the_rest_learn(name):
    names = list(make_backbone(name).layers._modules)
    middle = names[len(names) // 2]
    backbone = make_backbone(name).freeze_until(middle).train()
    stop = names.index(middle) + 1
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    side = 2 * BACKBONES[name].min_size
    backbone(torch.rand(2, 3, side, side)).sum().backward()
    for i, (layer, module) in enumerate(backbone.layers.named_children()):
        assert module.training == (i >= stop), layer
        for parameter in module.parameters():
            assert parameter.requires_grad == (i >= stop), layer
            assert (parameter.grad is None) == (i < stop), layer
        for key, value in module.state_dict().items():  # batch statistics of frozen layers stay
            assert i >= stop or torch.equal(value, before[f"layers.{layer}.{key}"]), layer
    freed = backbone.freeze_until(None)
    assert all(p.requires_grad for p in freed.parameters())
    assert all(m.training for m in freed.modules())


def test_bad_input_is_named():
    backbone = make_backbone("tiny")
    with pytest.raises(ValueError, match=r"tiny: expected images of shape \(B, 3, H, W\) with H, W >= 16"):
        backbone(torch.rand(3, 64, 64))
    with pytest.raises(ValueError, match=r"got \(1, 3, 8, 64\)"):
        backbone(torch.rand(1, 3, 8, 64))
    with pytest.raises(TypeError, match="floating-point images"):
        backbone(torch.zeros(1, 3, 64, 64, dtype=torch.uint8))
    with pytest.raises(ValueError, match="layer to freeze until"):
        backbone.freeze_until("conv9")
    with pytest.raises(ValueError, match=r"unknown backbone 'vgg'; did you mean 'vgg_m'.*timm/"):
        make_backbone("vgg")


def test_an_empty_batch_passes():
    assert make_backbone("tiny")(torch.zeros(0, 3, 32, 32)).shape == (0, 32, 4, 4)


def test_no_layer_is_shared_between_two_backbones():
    first, second = make_backbone("tiny"), make_backbone("tiny")
    with torch.no_grad():
        next(first.parameters()).zero_()
    assert isinstance(second.layers.conv1, nn.Conv2d)
    assert (second.layers.conv1.weight != 0).any()
