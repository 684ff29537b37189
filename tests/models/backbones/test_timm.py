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
    model = bcnn.build_model("improved_bcnn", backbone=name, num_classes=3, weights=None, proj_dim=16, size=64)
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


@pytest.mark.parametrize(
    ("name", "layer", "frozen", "free"),
    [
        (
            "timm/resnet18",
            "layer2",
            ["conv1", "bn1", "layer1.0.conv1", "layer2.1.bn2"],
            ["layer3.0.conv1", "layer4.1.bn2"],
        ),
        ("timm/resnet18", "layer2.0", ["layer2.0.bn2"], ["layer2.1.conv1"]),
        ("timm/vit_tiny_patch16_224", "blocks.5", ["patch_embed.proj", "blocks.5.mlp.fc2"], ["blocks.6.norm1"]),
        ("timm/convnext_atto", "stages.1", ["stem_0", "stages_1.blocks.0.norm"], ["stages_2.blocks.0.norm"]),
    ],
)
def test_freezing_until_a_layer(name, layer, frozen, free):
    backbone = make_backbone(name).freeze_until(layer).train()
    for module in frozen:
        part = backbone._root.get_submodule(module)
        assert not part.training, module
        assert not any(p.requires_grad for p in part.parameters()), module
    for module in free:
        part = backbone._root.get_submodule(module)
        assert part.training, module
        assert all(p.requires_grad for p in part.parameters()), module
    assert all(not p.requires_grad for p in backbone._root.parameters(recurse=False))
    freed = backbone.freeze_until(None)
    assert all(p.requires_grad for p in freed.parameters())
    assert all(m.training for m in freed.network.modules())
    with pytest.raises(ValueError, match="layer to freeze until 'layer9'"):
        backbone.freeze_until("layer9")


def test_a_frozen_network_survives_saving(tmp_path):
    model = bcnn.build_model("bcnn", backbone="timm/resnet18", weights=None, freeze_until="layer3", size=64)
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
    assert not again.train().backbone._root.get_submodule("layer1").training


def test_wrong_names_are_answered_with_the_right_ones():
    with pytest.raises(ValueError, match="timm: unknown model 'resnet_18'; did you mean 'resnet18'"):
        make_backbone("timm/resnet_18")
    with pytest.raises(ValueError, match="unknown layer 'layer9'"):
        make_backbone("timm/resnet18", cut="layer9")


def test_it_is_fine_tuned(tmp_path):
    from bcnn.descriptors.team import Team
    from bcnn.finetune.config import FinetuneConfig
    from bcnn.finetune.engine import start
    from bcnn.runs.config import RunConfig
    from bcnn.runs.finetune import finetune
    from tests.descriptors.images import picture_folder
    from tests.finetune.tasks import quiet

    spec = str(picture_folder(tmp_path / "pictures", classes=2, train=4, test=2))
    small = {"spec": spec, "preset": ("bcnn",), "backbone": "timm/resnet18", "weights": None, "size": 64, "proj_dim": 8}
    histories = []
    for again in (False, True):
        tuning = FinetuneConfig(epochs=1, batch_size=4, freeze_until="layer1", checkpoint_activations=again)
        out = tmp_path / str(again)
        (result,), _ = finetune(RunConfig(**small, finetune=tuning), out, start(), team=Team(), progress=quiet)
        histories.append(result.metrics.finetune.history[-1])
        model = bcnn.load(out / "model.safetensors")
        assert model.config.branches[0].freeze_until == "layer1"
    assert histories[0].train_loss == pytest.approx(histories[1].train_loss, rel=1e-5)
    assert histories[0].val_loss == pytest.approx(histories[1].val_loss, rel=1e-5)


@pytest.mark.parametrize(
    ("name", "channels"),
    [("resnet18", 512), ("convnext_atto", 320), ("swin_tiny_patch4_window7_224", 768), ("vit_tiny_patch16_224", 192),
     ("vit_medium_patch16_reg4_gap_256", 512), ("deit_tiny_distilled_patch16_224", 192), ("densenet121", 1024)],
)  # fmt: skip
def test_second_order_pooling_is_attached_to_a_live_network(name, channels):
    import timm

    size = 256 if "256" in name else 224
    model = timm.create_model(name, num_classes=6)
    bcnn.attach(model, "improved_bcnn", proj_dim=16)
    images = torch.rand(2, 3, size, size)
    model.train()
    scores = model(images)
    assert scores.shape == (2, 6)
    scores.square().sum().backward()
    assert model.second_order.projection.weight.grad.isfinite().all()
    model.eval()
    vectors = model.forward_head(model.forward_features(images), pre_logits=True)
    assert vectors.shape == (2, 16 * 17 // 2)
    assert torch.allclose(vectors.norm(dim=1), torch.ones(2), atol=1e-4)
    assert (model.num_features, model.head_hidden_size) == (channels, 136)
    assert model.get_classifier().in_features == 136
    model.reset_classifier(3)
    assert model(images).shape == (2, 3)
    model.reset_classifier(0)
    assert torch.allclose(model(images), vectors, atol=1e-5)


def test_tokens_of_class_and_registers_are_left_out_when_attached():
    import timm

    model = timm.create_model("vit_tiny_patch16_224", num_classes=4).eval()
    tokens = torch.randn(2, 197, 192)
    bcnn.attach(model, "bcnn")
    wanted = bcnn.describe(tokens[:, 1:], "bcnn", layout="tokens")
    assert torch.allclose(model.forward_head(tokens, pre_logits=True), wanted, atol=1e-5)
