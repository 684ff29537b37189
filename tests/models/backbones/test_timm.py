"""timm's networks behind the same contract; runs where timm is installed (`make test-timm`)."""

import pytest
import torch

import bcnn
from bcnn.models.backbones import make_backbone

pytestmark = pytest.mark.timm


@pytest.fixture(autouse=True)
def _timm():
    from .torchvision_schemas import declare

    declare()
    pytest.importorskip("timm")


@pytest.mark.parametrize(
    ("name", "layer", "size", "shape"),
    [
        ("timm/resnet18", None, 64, (512, 2, 2)),
        ("timm/resnet18", "layer3", 64, (256, 4, 4)),
        ("timm/resnet18", "-2", 64, (256, 4, 4)),
        ("timm/vit_tiny_patch16_224", None, 64, (192, 4, 4)),
        ("timm/vit_tiny_patch16_224", "blocks.5", 64, (192, 4, 4)),
        ("timm/swin_tiny_patch4_window7_224", None, None, (768, 7, 7)),
        ("timm/convnext_atto", "stages.2", 64, (160, 4, 4)),
    ],
)
def test_features_of_convolutions_and_transformers(name, layer, size, shape):
    backbone = make_backbone(name, cut=layer, image_size=size).eval()
    side = size or 224
    with torch.no_grad():
        features = backbone(torch.rand(2, 3, side, side))
    assert features.shape == (2, *shape)
    assert backbone.num_channels == shape[0]


@pytest.mark.parametrize("name", ["timm/resnet18", "timm/vit_tiny_patch16_224"])
def test_network_trains_saves_and_loads(name, tmp_path):
    model = bcnn.build_model("improved_bcnn", backbone=name, num_classes=3, weights=None, proj_dim=16, image_size=64)
    images = torch.rand(2, 3, 64, 64)
    torch.nn.functional.cross_entropy(model(images), torch.tensor([0, 2])).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert sum(p.grad is not None for p in model.backbone.parameters()) > 10
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    torch.testing.assert_close(again(images), model(images))
    assert model.config.preprocessing.size == 64


def test_preprocessing_is_timms():
    model = bcnn.build_model("bcnn", backbone="timm/vit_tiny_patch16_224", weights=None)
    assert model.config.preprocessing.size == 224
    assert model.config.preprocessing.interpolation == "bicubic"
    assert model.config.preprocessing.mean == (0.5, 0.5, 0.5)


def test_freezing_is_all_or_nothing():
    backbone = make_backbone("timm/resnet18", cut="layer2").freeze_until("layer2").train()
    assert not any(p.requires_grad for p in backbone.parameters())
    assert not backbone.network.training
    assert backbone.freeze_until(None).network.training
    with pytest.raises(ValueError, match="expected to freeze until 'layer2'"):
        backbone.freeze_until("layer1")


def test_wrong_names_are_answered_with_the_right_ones():
    with pytest.raises(ValueError, match="timm: unknown model 'resnet_18'; did you mean 'resnet18'"):
        make_backbone("timm/resnet_18")
    with pytest.raises(ValueError, match="unknown layer 'layer9'"):
        make_backbone("timm/resnet18", cut="layer9")
