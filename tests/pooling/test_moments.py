"""The moment matrix, and the identities between G2DeNet, MoNet and the B-CNNs."""

import numpy as np
import pytest
import scipy.linalg
import torch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.parts.shapes import Maps, Spd
from bcnn.pooling.moments import MomentPool
from bcnn.pooling.triangle import full_matrix
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, naive_matrix, relu_features

SHARP = ("signed_sqrt(1e-12)", "l2")


def rooted(points):
    return np.sign(points) * np.sqrt(np.abs(points))


def unit(x):
    return x / np.linalg.norm(x)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", ["maps", "tokens"])
@pytest.mark.parametrize("root", [False, True])
def test_it_is_mean_and_second_moments(layout, masked, root):
    features = torch.randn(3, 5, 11, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 1
    mask = torch.rand(3, 11, generator=torch.Generator().manual_seed(0)) > 0.3 if masked else None
    features = features.mT if layout == "tokens" else features
    pool = MomentPool(eps=0, root=root)
    found = formed(pool(features, layout=layout, mask=mask))
    assert pool.shape(Maps(5)) == Spd(6)
    for A, points in zip(found, locations(features, layout, mask), strict=True):
        x = rooted(points) if root else points
        expected = np.block([[naive_matrix(x, 0, "trace"), x.mean(0)[:, None]], [x.mean(0), np.ones(1)]])
        np.testing.assert_allclose(A, expected, rtol=1e-3 if root else 1e-10, atol=1e-5)


def test_g2denet_is_the_formula():
    features = relu_features(2, 4, 30) + 0.1
    head = bcnn.Head("g2denet", 4, eps=0, normalize=("matrix_sqrt", *SHARP))
    for found, points in zip(full_matrix(head(features)), locations(features), strict=True):
        x = np.concatenate([rooted(points), np.ones((30, 1))], 1)
        expected = unit(rooted(scipy.linalg.sqrtm(x.T @ x / 30)))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_monet_with_bilinear_pooling_is_g2denet():
    features = relu_features(2, 4, 30) + 0.1
    head = bcnn.Head("g2denet", 4, eps=0, normalize=("matrix_sqrt", *SHARP), triangle=False)
    for found, points in zip(head(features), locations(features), strict=True):
        x = np.concatenate([np.ones((30, 1)), rooted(points)], 1) / 30**0.5  # MoNet has the 1 first
        _, s, Vt = np.linalg.svd(x, full_matrices=False)
        Y = np.sqrt(s)[:, None] * Vt
        A = np.roll(Y.T @ Y, (-1, -1), (0, 1))
        np.testing.assert_allclose(found, unit(rooted(A)).ravel(), rtol=1e-4, atol=1e-5)


def test_monet_is_the_sketch_of_g2denets_matrix():
    features = relu_features(2, 4, 30)
    head = bcnn.Head("monet", 4)
    assert head.out.length == 10_000
    sketch, *rest = list(head.normalizations)[1:]
    matrix = bcnn.Head("g2denet", 4, normalize="matrix_sqrt", triangle=False)(features).unflatten(1, (5, 5))
    expected = sketch(matrix)
    for part in rest:
        expected = part(expected)
    torch.testing.assert_close(head(features), expected)


def test_without_root_and_one_it_is_the_improved_bcnn():
    features = relu_features(2, 4, 30)
    A = formed(MomentPool(eps=0, root=False)(features))[:, :4, :4]
    torch.testing.assert_close(A, bcnn.bilinear_pool(features, eps=0))  # and with the matrix root it is improved


@pytest.mark.parametrize("n", [3, 30], ids=["thin", "thick"])
def test_gradients(n):
    features = (relu_features(2, 5, n) + 0.1).requires_grad_()
    mask = torch.rand(2, n, generator=torch.Generator().manual_seed(1)) > 0.3
    pool = MomentPool()
    assert torch.autograd.gradcheck(lambda x: formed(pool(x, mask=mask)), (features,))
    assert torch.autograd.gradcheck(bcnn.Head("g2denet", eps=0.1), (features,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dead_channels_and_black_images_have_gradients(dtype):
    features = relu_features(3, 6, 4, 4)
    features[1, 2:] = 0
    features[2] = 0
    leaf = features.to(dtype).requires_grad_()
    found = bcnn.describe(leaf, "g2denet")
    (found * torch.arange(found.shape[1]).sin()).sum().backward()
    assert found.dtype == torch.float32
    assert leaf.grad.isfinite().all()
    exact = bcnn.describe(features, "g2denet")
    assert (found.double() * exact).sum(-1).min() > (0.99999 if dtype == torch.float32 else 0.98)


def test_the_mask():
    features = relu_features(2, 5, 6)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 4:] = False
    spoilt = features.masked_fill(~mask[:, None], float("nan"))
    torch.testing.assert_close(bcnn.describe(spoilt, "monet", mask=mask), bcnn.describe(features[..., :4], "monet"))
    none = torch.zeros_like(mask)
    assert bcnn.describe(spoilt, "g2denet", mask=none).isfinite().all()


def test_compiles(compiled):
    head, features = bcnn.Head("monet", 5), relu_features(2, 5, 20, dtype=torch.float32)
    torch.testing.assert_close(compiled(head)(features), head(features), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("more", [("--preset", "g2denet"), (*SHORT, "--preset", "monet")], ids=["frozen", "tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--proj-dim", "8", *more)
    assert metrics["descriptor_length"] == (10_000 if "monet" in more else 45)
    predict(pictures, tmp_path / "run")
