"""Learning rates by part, frozen layers, fixed batch statistics, activation checkpoints."""

import pytest
import torch
from torch.nn import functional

from bcnn.finetune.config import FinetuneConfig
from bcnn.finetune.module import Trained, make_optimizer, memory_note, set_learning_rate
from bcnn.models.backbones import BACKBONES
from bcnn.models.build import build_model
from tests.finetune.tasks import small_network


def test_every_part_has_its_learning_rate():
    model = small_network()
    optimizer = make_optimizer(model, FinetuneConfig(lr_scale=("backbone=0.1", "conv3=0.5", "scorer=10")))
    set_learning_rate(optimizer, 0.02)
    found = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    rates = {name: found[id(p)] for name, p in model.named_parameters()}
    assert rates["branches.0.backbone.layers.conv1.weight"] == pytest.approx(0.002)
    assert rates["branches.0.backbone.layers.conv3.bias"] == pytest.approx(0.01)  # the later one goes first
    assert rates["scorer.weight"] == pytest.approx(0.2)


def test_every_part_has_its_weight_decay():
    model = small_network()
    config = FinetuneConfig(weight_decay=0.01, lr_scale=("scorer=10",), decay_scale=("scorer=0", "conv3=2"))
    optimizer = make_optimizer(model, config)
    found = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    decays = {name: found[id(p)] for name, p in model.named_parameters()}
    assert decays["branches.0.backbone.layers.conv1.weight"] == pytest.approx(0.01)
    assert decays["branches.0.backbone.layers.conv3.weight"] == pytest.approx(0.02)
    assert decays["scorer.weight"] == decays["scorer.bias"] == 0
    with pytest.raises(ValueError, match="part to train in decay_scale 'conv9'"):
        make_optimizer(model, FinetuneConfig(decay_scale=("conv9=2",)))


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match=r"lr_scale 'conv9'; did you mean|lr_scale 'conv9'"):
        make_optimizer(small_network(), FinetuneConfig(lr_scale=("conv9=2",)))


def test_frozen_layers_have_no_momentum():
    model = small_network(freeze_until="conv2")
    trained = {id(p) for group in make_optimizer(model, FinetuneConfig()).param_groups for p in group["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in trained}
    assert names == {
        "branches.0.backbone.layers.conv3.weight",
        "branches.0.backbone.layers.conv3.bias",
        "scorer.weight",
        "scorer.bias",
    }


def test_batch_statistics_stay_as_they_are():
    torch.manual_seed(0)
    model = build_model("bcnn", backbone="mobilenet_v2", weights=None, num_classes=2, proj_dim=8, size=32)
    network = Trained(model).train()
    before = {name: value.clone() for name, value in model.named_buffers()}
    network(torch.rand(2, 3, 64, 64)).sum().backward()
    assert before
    assert all(torch.equal(before[name], value) for name, value in model.named_buffers())


@pytest.mark.parametrize("backbone", ["tiny", "alexnet", "mobilenet_v2"])
@pytest.mark.parametrize("start", [None, "second"])
def test_activation_checkpoints_change_no_gradient(backbone, start):
    torch.manual_seed(0)
    model = build_model("bcnn", backbone=backbone, weights=None, num_classes=2, proj_dim=4, size=64).double()
    network = Trained(model, start and list(model.backbone.layers._modules)[1]).train()
    values = torch.rand(2, 3, 64, 64, dtype=torch.float64)
    if start:
        values = torch.nn.Sequential(*list(model.backbone.layers)[:2])(values).detach()
    grads = []
    for on in (False, True):
        model.backbone.checkpoint_activations(on)
        model.zero_grad()
        functional.cross_entropy(network(values.clone()), torch.tensor([0, 1])).backward()
        grads.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    assert len(grads[0]) > 2
    for name, grad in grads[0].items():
        torch.testing.assert_close(grads[1][name], grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "tiny"])
def test_segments_cover_all_layers_and_none_begins_in_place(name):
    model = build_model("average", backbone=name, weights=None)
    segments = model.backbone._segments(0)
    assert [layer for segment in segments for layer in segment] == list(model.backbone.layers)
    assert len(segments) > 1
    assert not any(getattr(segment[0], "inplace", False) for segment in segments)


def test_the_saving_of_the_upper_triangle_is_told():
    note = memory_note(build_model("bcnn", backbone="alexnet", weights=None, num_classes=200))
    assert "32896 x 200: 79 MB" in note
    assert "157 MB" in note
    assert "whole" not in memory_note(build_model("average", backbone="alexnet", weights=None, num_classes=200))
