"""DropCov: plain covariance pooling after training, dropout at the rate of the formula during it."""

import math

import numpy as np
import pytest
import torch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.pooling.covariance import CovariancePool, centred_columns
from bcnn.pooling.dropcov import DropCovPool, drop_rate
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, relu_features


def test_after_training_it_is_the_covariance():
    features = relu_features(3, 6, 4, 3)
    mask = torch.rand(3, 4, 3) > 0.2
    expected = formed(CovariancePool(eps=0)(features, mask=mask))
    torch.testing.assert_close(formed(DropCovPool().eval()(features, mask=mask)), expected)


def test_the_rate_is_the_formula():
    features, w = relu_features(3, 6, 15), torch.rand(3, 6, dtype=torch.float64)
    cosines = []
    for points, own in zip(locations(features), w.numpy(), strict=True):
        sums = np.cov(points.T, bias=True).sum(1)
        cosines.append(own @ sums / np.linalg.norm(own) / np.linalg.norm(sums))
    X = centred_columns("test", features)
    expected = np.clip(1 - 10 / math.log2(6) * np.mean(cosines), 0, 1)
    assert math.isclose(float(drop_rate(X, w)), expected, abs_tol=1e-12)
    # Few channels are not dropped; weights that turn from the sums, or many channels, have them dropped.
    assert float(drop_rate(X, -w)) == 1
    wide = torch.randn(2, 4096, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert 0 < float(drop_rate(wide, torch.ones(2, 4096, dtype=torch.float64))) < 1


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_channels_are_dropped_whole_and_the_others_grow(monkeypatch, rate):
    monkeypatch.setattr("bcnn.pooling.dropcov.drop_rate", lambda X, w: X.new_tensor(rate))
    features = relu_features(40, 50, 9)
    torch.manual_seed(0)
    pool = DropCovPool().double().train()
    X = pool(features).X
    mu = torch.nn.functional.pad(features.mean(-1), (1, 1)).unfold(1, 3, 1)  # each channel with its neighbours
    w = (mu @ pool.weight).softmax(-1)
    plain = centred_columns("test", features) * (1 + w)[..., None]
    alive = (X != 0).any(-1)
    assert abs(alive.double().mean() - (1 - rate)) < 0.05
    torch.testing.assert_close(X[alive], plain[alive] / max(1 - rate, 1e-9))


def test_gradients():
    features = relu_features(2, 5, 7).requires_grad_()
    pool = DropCovPool().double().train()

    def fixed(x, weight):
        torch.manual_seed(0)
        return formed(pool(x))

    assert torch.autograd.gradcheck(fixed, (features, pool.weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_and_edges(dtype):
    features = relu_features(3, 8, 4, 4)
    features[1] = 0
    pool = DropCovPool().train()
    leaf = features.to(dtype).requires_grad_()
    A = formed(pool(leaf))
    A.sum().backward()
    assert A.dtype == torch.float32
    assert A.isfinite().all()
    assert leaf.grad.isfinite().all()
    assert formed(pool(features[:, :1].float())).isfinite().all()  # one channel


def test_compiles(compiled):
    head, features = bcnn.Head("dropcov", 5).eval(), relu_features(2, 5, 20, dtype=torch.float32)
    torch.testing.assert_close(compiled(head)(features), head(features))
    compiled(head.train())(features)


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--preset", "dropcov", "--proj-dim", "8", *more)
    assert metrics["descriptor_length"] == 36
    predict(pictures, tmp_path / "run")
