"""A loss or gradient that is not finite: the layer that made it is named."""

import pytest
import torch
from torch import nn

from bcnn.errors import NonFiniteTrainingError, NotFiniteError
from bcnn.finetune import guard
from bcnn.finetune.module import Trained
from bcnn.metrics import NonFinite
from tests.finetune.tasks import small_network


class Spoil(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, forward):
        return x * float("nan") if forward else x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * float("inf"), None


class Spoiler(nn.Module):
    """Spoils the values, or their gradient."""

    def __init__(self, forward: bool):
        super().__init__()
        self.is_forward = forward

    def forward(self, x):
        return Spoil.apply(x, self.is_forward)


IMAGES, LABELS = torch.rand(2, 3, 32, 32), torch.tensor([0, 1])


def test_nothing_is_found_where_all_is_well():
    assert guard.find_layer(Trained(small_network()), IMAGES, LABELS) is None


@pytest.mark.parametrize("position", range(1, 6))
def test_the_layer_that_spoils_the_gradient_is_named(position):
    model = small_network()
    layers = list(model.backbone.layers.named_children())
    name = f"{layers[position][0]}"
    model.backbone.layers[position] = nn.Sequential(layers[position][1], Spoiler(forward=False))
    what, layer = guard.find_layer(Trained(model), IMAGES, LABELS)
    assert what == "gradient"
    assert layer == f"branches.0.backbone.layers.{name}.1 (Spoiler)"


def test_the_layer_that_spoils_the_values_is_named():
    model = small_network()
    model.branches[0].projection = Spoiler(forward=True)
    what, layer = guard.find_layer(Trained(model), IMAGES, LABELS)
    assert what == "loss"
    assert layer.startswith("branches.0.projection (Spoiler)")


def test_the_first_bad_layer_is_named_although_the_head_refuses_it():
    model = small_network()
    with torch.no_grad():
        model.backbone.layers.conv2.bias[0] = float("nan")
    assert guard.find_layer(Trained(model), IMAGES, LABELS) == ("loss", "branches.0.backbone.layers.conv2 (Conv2d)")


def test_a_layer_that_raises_is_named():
    class Refuses(nn.Module):
        def forward(self, x):
            raise NotFiniteError("not with me")

    model = small_network()
    model.branches[0].projection = Refuses()
    assert guard.find_layer(Trained(model), IMAGES, LABELS) == ("loss", "branches.0.projection (Refuses): not with me")


@pytest.mark.parametrize("size", [32, 128], ids=["thin", "whole"])
def test_the_matrix_function_is_named(size, monkeypatch):
    model = small_network()
    root = model.head.normalizations[0]
    call = root.forward
    monkeypatch.setattr(root, "forward", lambda A: Spoil.apply(call(A), False))
    found = guard.find_layer(Trained(model), torch.rand(2, 3, size, size), LABELS)
    assert found == ("gradient", "head.normalizations.0 (MatrixSqrt)")


def test_an_input_that_is_not_finite():
    assert guard.find_layer(Trained(small_network()), IMAGES * float("inf"), LABELS) == ("loss", "the input")


def test_the_last_layers_weights():
    model = small_network()
    model.scorer.weight.register_hook(lambda grad: grad * float("nan"))
    assert guard.find_layer(Trained(model), IMAGES, LABELS) == ("gradient", "scorer.weight")


def test_stopping_and_skipping():
    event = NonFinite(3, 17, "gradient", "head.normalizations.0 (MatrixSqrt)", ("a.jpg", "b.jpg", "c.jpg", "d.jpg"))
    with pytest.raises(NonFiniteTrainingError, match=r"epoch 3, batch 17.*MatrixSqrt.*a.jpg.*and 1 more.*skip"):
        guard.decide(event, "stop", 1)
    guard.decide(event, "skip", guard.MOST_IN_A_ROW - 1)
    with pytest.raises(NonFiniteTrainingError, match="20 batches in a row"):
        guard.decide(event, "skip", guard.MOST_IN_A_ROW)
