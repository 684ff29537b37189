"""`bcnn.attach` on networks that are built as timm's are, without timm; timm's own are in backbones/test_timm.py."""

import copy

import pytest
import torch
from torch import nn

import bcnn
from bcnn.models.attach import SecondOrderPool


class Convolutional(nn.Module):
    """As timm's ResNet: a pooling module and a classifier at the top."""

    num_features, num_classes = 8, 5

    def __init__(self, layout="NCHW"):
        super().__init__()
        self.layout = layout
        self.body = nn.Conv2d(3, 8, 3, stride=2)
        self.global_pool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward_features(self, x):
        maps = torch.relu(self.body(x))
        return maps.movedim(1, -1) if self.layout == "NHWC" else maps

    def forward_head(self, x, pre_logits=False):
        x = self.global_pool(x).flatten(1)
        return x if pre_logits else self.fc(x)

    def get_classifier(self):
        return self.fc

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


class Transformer(nn.Module):
    """As timm's ViT: tokens, the first of which are no locations, and a norm after the pooling."""

    num_features, num_classes, num_prefix_tokens, drop_rate = 8, 5, 2, 0.0

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.prefix = nn.Parameter(torch.randn(1, 2, 8))
        self.fc_norm, self.head_drop, self.head = nn.LayerNorm(8), nn.Dropout(0.5), nn.Linear(8, 5)

    def forward_features(self, x):
        tokens = self.patches(x).flatten(2).mT
        return torch.cat([self.prefix.expand(len(x), -1, -1), tokens], 1)

    def forward_head(self, x, pre_logits=False):
        x = self.fc_norm(x[:, 2:].mean(1))
        return x if pre_logits else self.head(self.head_drop(x))

    def get_classifier(self):
        return self.head

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


IMAGES = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_maps(layout):
    model = Convolutional(layout).eval()
    kind = type(model)
    assert bcnn.attach(model, "improved_bcnn", num_classes=4) is model
    assert isinstance(model, kind)
    maps = model.forward_features(IMAGES)
    wanted = bcnn.describe(maps if layout == "NCHW" else maps.movedim(-1, 1), "improved_bcnn")
    assert torch.equal(model.forward_head(maps, pre_logits=True), wanted)
    assert torch.equal(model(IMAGES), model.fc(wanted))
    assert model(IMAGES).shape == (2, 4)
    assert (model.num_features, model.head_hidden_size, model.num_classes) == (8, 36, 4)


def test_tokens_without_prefix_and_the_norm_at_every_location():
    torch.manual_seed(0)
    model = Transformer().eval()
    with torch.no_grad():
        model.fc_norm.weight.uniform_(0.5, 2)
    norm = copy.deepcopy(model.fc_norm)
    bcnn.attach(model, "bcnn")
    tokens = model.forward_features(IMAGES)
    wanted = bcnn.describe(norm(tokens)[:, 2:], "bcnn", layout="tokens")
    assert torch.allclose(model.forward_head(tokens, pre_logits=True), wanted, atol=1e-6)
    assert model(IMAGES).shape == (2, 5)  # as many classes as before
    with torch.no_grad():
        model.prefix.add_(100)
    assert torch.allclose(model(IMAGES), model.head(wanted), atol=1e-5)  # they count for nothing


def test_it_learns_and_no_parameter_is_left_over():
    torch.manual_seed(0)
    for model in (Convolutional(), Transformer()):
        bcnn.attach(model, "improved_bcnn").train()
        model(IMAGES).square().sum().backward()
        lost = [name for name, p in model.named_parameters() if p.grad is None and name != "prefix"]
        assert lost == []
        assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_new_classifier_another_preset_and_a_copy():
    model = bcnn.attach(Convolutional(), "improved_bcnn", num_classes=0)
    assert model(IMAGES).shape == (2, 36)
    model.reset_classifier(7)
    assert model(IMAGES).shape == (2, 7)
    assert model.get_classifier() is model.fc
    model.reset_classifier(3, "average")
    assert model.fc.in_features == model.head_hidden_size == 8
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(IMAGES), model(IMAGES))
    again = bcnn.attach(model, "bcnn", num_classes=2, proj_dim=4)  # a second time
    assert again(IMAGES).shape == (2, 2)
    assert again.head_hidden_size == 10
    assert type(again).__mro__.count(Convolutional) == 1
    with pytest.raises(ValueError, match="unknown preset 'avg'"):
        model.reset_classifier(3, "avg")


def test_a_named_pooling_module():
    net = nn.Sequential()
    net.body, net.avgpool = nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1)
    net.flat, net.fc = nn.Flatten(), nn.Linear(8, 5)
    bcnn.attach(net, "improved_bcnn", pool="avgpool")
    assert isinstance(net.avgpool, SecondOrderPool)
    assert torch.equal(net(IMAGES), net.fc(bcnn.describe(net.body(IMAGES), "improved_bcnn")))
    assert net(IMAGES).shape == (2, 5)


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (nn.Linear(3, 4), {}, "name its pooling module, such as pool='avgpool'"),
        (Convolutional(), {"preset": "improved"}, "unknown preset 'improved'"),
        (Convolutional(), {"num_classes": -1}, "expected num_classes >= 0, got -1"),
        (Convolutional(), {"pool": "avgpool"}, "expected the name of a module, got 'avgpool'; there are: body"),
        (Convolutional(), {"classifier": "last"}, "expected the name of a module, got 'last'"),
        (Convolutional(), {"layout": "tokens"}, "unknown layout 'tokens'"),
        (Convolutional(), {"pooling": "asymmetric", "normalize": ()}, "asymmetric"),
        (nn.Sequential(nn.Conv2d(3, 4, 3)), {"pool": "0"}, "whose classifier is found, got none"),
    ],
)
def test_what_is_refused(model, options, said):
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        bcnn.attach(model, **options)


def test_other_features_are_named():
    with pytest.raises(TypeError, match="expected a network, got str"):
        bcnn.attach("resnet50")
    model = bcnn.attach(Convolutional(), "bcnn", channels=9)
    with pytest.raises(ValueError, match=r"expected features of 9 channels.*pass channels="):
        model(IMAGES)
