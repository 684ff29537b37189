"""A scorer that does the pooling itself: it never forms A."""

import pytest
import torch

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.parts.registry import Part
from bcnn.parts.shapes import Spd, expect
from bcnn.pooling.triangle import full_matrix
from bcnn.scorers import SCORERS
from bcnn.scorers.contract import Scorer
from tests.command import run_command

from .walk import SHORT, SMALL, predict, train


class Directions(Scorer):
    """The score of a class is what A has along its directions, U_k^T A U_k, summed, and a bias.

    Args:
        rank: directions per class.
    """

    takes = Spd

    def __init__(self, inputs, num_classes, rank: int = 2):
        super().__init__()
        dim = expect("directions", Spd, inputs[0]).dim
        self.num_classes = num_classes
        self.U = torch.nn.Parameter(torch.randn(num_classes, dim, rank) / dim**0.5)
        self.bias = torch.nn.Parameter(torch.zeros(num_classes))

    def forward(self, given):
        if isinstance(given, Factored):
            along = torch.einsum("kdr,bdn->bkrn", self.U, given.X.to(self.U)).square().sum((-2, -1))
            if given.ridge is not None:
                along = along + given.ridge[:, None].to(self.U) * self.U.square().sum((-2, -1))
        else:
            along = torch.einsum("kdr,bde,ker->bk", self.U, given.to(self.U), self.U)
        return along + self.bias


class StartedDirections(Directions):
    """The same, started from a linear classifier: the best directions of its weights."""

    can_start = True

    @torch.no_grad()
    def start_from(self, weight, bias):
        values, vectors = torch.linalg.eigh(full_matrix(weight))
        rank = self.U.shape[-1]
        self.U.copy_(vectors[..., -rank:] * values[..., None, -rank:].clamp_min(0).sqrt())
        self.bias.copy_(bias)


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(SCORERS, "directions", Part(Directions, "the strength of A along directions"))
    monkeypatch.setitem(SCORERS, "started", Part(StartedDirections, "the same, from a linear classifier"))


def model(**options):
    torch.manual_seed(0)
    return bcnn.build_model(
        "bcnn", backbone="tiny", weights=None, num_classes=3, scorer="directions(rank=3)", normalize=(), **options
    )


def test_built_without_forming_a(monkeypatch):
    network = model(eps=0.1)
    images = torch.rand(2, 3, 32, 32)
    expected = network.score(network.describe(images))
    monkeypatch.setattr(Factored, "form", None)  # nobody calls it
    torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"no normalizations .* before the scorer 'directions'.*pass normalize=\(\)"):
        bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, scorer="directions")
    with pytest.raises(ValueError, match=r"directions: expected a symmetric .* got a vector of 32 numbers"):
        model(pooling="average")


def test_fine_tuned_saved_loaded_predicted(pictures, tmp_path):
    options = ("--scorer", "directions(rank=3)", "--pooling", "bilinear(eps=0.1)", "--normalize", "none")
    metrics = train(pictures, tmp_path / "run", *options, *SHORT)
    assert metrics["classifier"]["kind"] == "directions(rank=3)"
    assert bcnn.load(tmp_path / "run" / "model.safetensors").scorer.U.shape == (3, 32, 3)
    predict(pictures, tmp_path / "run")


def test_without_fine_tuning_it_has_to_start_from_a_classifier(pictures, tmp_path):
    command = ("train", pictures, *SMALL, "--backbone", "tiny", "--normalize", "none", "--out", tmp_path / "run")
    refused = run_command(*command, "--scorer", "directions")
    assert refused.returncode == 2
    assert "expected a scorer that a linear classifier can be turned into, got 'directions'" in refused.stderr
    train(pictures, tmp_path / "run", "--scorer", "started(rank=16)", "--normalize", "none")
    predict(pictures, tmp_path / "run")
