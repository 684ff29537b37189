"""Democratic aggregation: its equation, its limits, its sketches."""

import numpy as np
import pytest
import torch
from scipy.optimize import root
from sklearn.kernel_approximation import PolynomialCountSketch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.parts.shapes import Maps, Spd
from bcnn.pooling import POOLINGS
from bcnn.pooling.bilinear import bilinear_pool
from bcnn.pooling.democratic import democratic_weights
from bcnn.pooling.head import Head

from .encoders import scattered
from .helpers import locations, relu_features


def pooling(channels, **options):
    text = ", ".join(f"{name}={value}" for name, value in options.items())
    return POOLINGS.make(f"democratic({text})", inputs=(Maps(channels),))


def kernel(points):
    return np.square(points @ points.T)


@pytest.mark.parametrize("gamma", [0.0, 0.3, 0.5, 1.0])
def test_weights_solve_the_equation(gamma):
    K = torch.from_numpy(np.stack([kernel(points) for points in locations(relu_features(3, 5, 4, 4))]))
    K = K + 1e-3 * torch.eye(16).double()
    alpha = democratic_weights(K, gamma=gamma, num_iters=300)
    right = K.sum(-1) ** gamma
    torch.testing.assert_close(alpha * (K @ alpha[..., None])[..., 0], right, rtol=1e-8, atol=0)
    assert (alpha > 0).all()
    for own, wanted, found in zip(K.numpy(), right.numpy(), alpha.numpy(), strict=True):  # in logarithms: alpha > 0
        theirs = root(lambda s, own=own, wanted=wanted: s + np.log(own @ np.exp(s)) - np.log(wanted), np.zeros(16))
        np.testing.assert_allclose(np.exp(theirs.x), found, rtol=1e-5)


def test_ten_damped_steps_are_near_the_solution():
    """And more of them are nearer."""
    K = torch.from_numpy(np.stack([kernel(points) for points in locations(relu_features(3, 8, 6, 6))]))

    def residual(num_iters):
        alpha = democratic_weights(K, gamma=0.5, num_iters=num_iters)
        return float((alpha * (K @ alpha[..., None])[..., 0] / K.sum(-1) ** 0.5 - 1).abs().max())

    assert residual(10) < 0.02
    assert residual(40) < residual(20) < residual(10) < residual(5)


@pytest.mark.parametrize(("eps", "eps_scale"), [(0, "trace"), (0.01, "trace"), (0.1, "absolute")])
def test_gamma_one_is_bilinear_pooling(eps, eps_scale):
    features = relu_features(3, 5, 4, 3)
    mask = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(0)) > 0.3
    for own in (None, mask):
        A = pooling(5, gamma=1, eps=eps, eps_scale=repr(eps_scale))(features, mask=own).form()
        torch.testing.assert_close(A, bilinear_pool(features, eps=eps, eps_scale=eps_scale, mask=own))


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_the_matrix_is_the_weighted_sum(gamma):
    features = scattered(3, 4, 4, 3)
    A = pooling(4, gamma=gamma, eps=0, num_iters=300)(features).form()
    for points, own in zip(locations(features), A.numpy(), strict=True):
        K = kernel(points)
        K /= K.sum() / len(K)
        K += 1e-10 * np.eye(len(K))
        wanted = K.sum(1) ** gamma
        alpha = np.exp(root(lambda s, K=K, w=wanted: s + np.log(K @ np.exp(s)) - np.log(w), np.zeros(len(K))).x)
        np.testing.assert_allclose(own, (points.T * alpha) @ points / len(points), rtol=1e-5, atol=1e-8)


def test_copies_count_by_the_root_of_their_number():
    """At gamma = 0, of locations that are orthogonal to all others."""
    features = torch.zeros(1, 2, 10, dtype=torch.float64)
    features[0, 0, :9] = 1  # nine copies of one, one of the other
    features[0, 1, 9] = 1
    A = pooling(2, gamma=0, eps=0, num_iters=100)(features).form()[0]
    assert float(A[0, 0] / A[1, 1]) == pytest.approx(3, rel=1e-6)
    plain = pooling(2, gamma=1, eps=0)(features).form()[0]
    assert float(plain[0, 0] / plain[1, 1]) == pytest.approx(9)


def test_the_matrix_grows_with_the_squares_of_the_features():
    for dtype, scales in ((torch.float64, (1e-12, 1e12)), (torch.float32, (1e-8, 1e8))):
        features = relu_features(2, 5, 4, 4, dtype=dtype)
        expected = pooling(5, eps=0)(features).form()
        for scale in scales:
            result = pooling(5, eps=0)(scale * features).form() / scale**2
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)


def test_locations_of_zero_change_nothing():
    features = relu_features(1, 5, 12)
    longer = torch.cat([features, torch.zeros(1, 5, 4, dtype=torch.float64)], -1)
    few, many = (pooling(5, gamma=0, eps=0, num_iters=200)(x).form() for x in (features, longer))
    torch.testing.assert_close(few / few.norm(), many / many.norm(), rtol=1e-6, atol=1e-9)


def test_with_matrix_functions():
    """A is a matrix like any other, and its factor takes the thin path."""
    features = relu_features(2, 12, 3, 3)
    A = pooling(12, gamma=0.5)(features)
    for thin in (True, False):
        head = Head("improved_bcnn", 12, pooling="democratic(gamma=0.5)", normalize=(f"matrix_sqrt(thin={thin})", "l2"))
        expected = bcnn.upper_triangle(bcnn.sqrtm(A.form()))
        expected = expected / expected.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(head(features), expected, rtol=1e-6, atol=1e-8)


def test_the_sketched_form():
    """The Tensor Sketch of the matrix is the weighted sum of the sketches of all locations."""
    module = pytest.importorskip("bcnn.pooling.tensor_sketch")
    features = scattered(2, 6, 3, 3)
    part = pooling(6, eps=0)
    A = part(features)
    sketch = module.TensorSketch((Spd(6),), width=32)
    theirs = PolynomialCountSketch(degree=2, gamma=1, coef0=0, n_components=32).fit(np.zeros((1, 6)))
    theirs.indexHash_ = np.stack([sketch.places_1, sketch.places_2])
    theirs.bitHash_ = np.stack([sketch.signs_1, sketch.signs_2])
    alpha = part.weights(features.flatten(2) / 3, torch.tensor(9.0))
    for points, weights, own in zip(locations(features), alpha.numpy(), sketch(A), strict=True):
        expected = weights @ theirs.transform(points) / 9
        np.testing.assert_allclose(own.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 1.5}, "expected `gamma` from 0 to 1"),
        ({"tau": 0}, "and `tau` above 0"),
        ({"num_iters": 0}, "expected `num_iters` to be a whole number >= 1"),
        ({"eps": -1}, "expected `eps` to be a number >= 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        pooling(3, **options)


def test_half_of_the_thin_path_needs_a_ridge():
    assert pooling(3).has_ridge
    assert not pooling(3, eps=0).has_ridge
    assert formed(pooling(3, eps=0)(relu_features(1, 3, 4))).shape == (1, 3, 3)
