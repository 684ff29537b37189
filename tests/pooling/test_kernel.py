"""Kernel pooling: every order against scikit-learn's sketch, the kernel that it stands for, gamma from data."""

import math

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.metrics.pairwise import rbf_kernel

import bcnn
from bcnn.parts.shapes import Maps, Vector
from bcnn.pooling import POOLINGS
from bcnn.pooling.kernel import gaussian_weights
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, relu_features


def make(text, channels):
    return POOLINGS.make(text, inputs=(Maps(channels),))


def units(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def reference(part, points):
    """Order by order, as the literature writes it, with scikit-learn's sketches."""
    x = units(points)
    alpha = part.alpha.detach().double().numpy()
    found = [alpha[:1], alpha[1] * x.mean(0)]
    for k in range(2, part.order + 1):
        sketch = PolynomialCountSketch(degree=k, gamma=1, coef0=0, n_components=part.width, random_state=0).fit(x)
        sketch.indexHash_, sketch.bitHash_ = part.places[:k].numpy(), part.signs[:k].double().numpy()
        found.append(alpha[k] * sketch.transform(x).mean(0))
    return np.concatenate(found)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("layout", ["maps", "tokens"])
def test_every_order_is_scikit_learns(order, layout, masked):
    features = relu_features(3, 6, 4, 3) + 0.1
    mask = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(0)) > 0.3 if masked else None
    if layout == "tokens":
        features, mask = features.flatten(2).mT, None if mask is None else mask.flatten(1)
    part = make(f"kernel(17, order={order}, gamma=0.7)", 6)
    expected = np.stack([reference(part, points) for points in locations(features, layout, mask)])
    found = part(features, layout=layout, mask=mask).detach().numpy()
    assert found.shape == (3, part.shape(Maps(6)).length)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_published_width():
    assert make("kernel(gamma=1)", 512).shape(Maps(512)) == Vector(12801)
    assert make("kernel(gamma=1)", 2048).shape(Maps(2048)) == Vector(14337)


def test_the_weights_are_the_gaussian_kernels():
    alpha = gaussian_weights(0.7, 30)
    for cosine in (-1.0, 0.0, 0.3, 1.0):
        series = sum(float(a) ** 2 * cosine**k for k, a in enumerate(alpha))
        assert math.isclose(series, math.exp(-0.7 * (2 - 2 * cosine)), rel_tol=1e-12, abs_tol=1e-12)


def test_the_error_of_the_kernel_falls_with_width_and_order():
    points = units(relu_features(40, 10).numpy())
    exact = rbf_kernel(points, gamma=0.8)
    one_each = torch.tensor(points)[:, :, None]  # images of one location

    def error(order, width):
        wrong = []
        for seed in range(5):
            features = make(f"kernel({width}, order={order}, gamma=0.8, seed={seed})", 10)(one_each).detach().numpy()
            wrong.append(np.abs(features @ features.T - exact).mean())
        return np.mean(wrong)

    assert error(4, 4096) < 0.5 * error(4, 256) < 0.25 * error(4, 16)
    assert error(4, 4096) < 0.5 * error(1, 4096)


def test_gamma_is_found_on_training_features():
    features = relu_features(5, 6, 4, 3) + 0.1
    part = make("kernel(8)", 6)
    with pytest.raises(ValueError, match=r"KernelPool: expected to be fitted on training images first"):
        part(features)
    part.fit(lambda: [(features[:2],), (features[2:],)])
    means = [np.mean(units(points) @ units(points).T) for points in locations(features)]
    assert math.isclose(float(part.gamma), 1 / np.mean(means), rel_tol=1e-5)
    np.testing.assert_allclose(part.alpha.detach(), gaussian_weights(float(part.gamma), 4), rtol=1e-5)
    with pytest.raises(ValueError, match="features are not all zero"):
        make("kernel(8)", 6).fit(lambda: [(torch.zeros(2, 6, 3, 3),)])


def test_gradients_and_precision():
    part = make("kernel(8, order=3, gamma=0.5)", 4).double()
    features = relu_features(2, 4, 3) + 0.2
    assert torch.autograd.gradcheck(lambda x, _: part(x), (features.requires_grad_(), part.alpha))
    exact = part(features)
    assert (part(features.float()).double() - exact).abs().max() < 1e-5
    assert (part(features.bfloat16()).double() - exact).abs().max() < 2e-2
    black = torch.zeros(1, 4, 3, requires_grad=True)
    part(black).sum().backward()
    assert black.grad.isfinite().all()


def test_compiles(compiled):
    head = bcnn.Head("kernel", 5, pooling="kernel(16, gamma=1)")
    features = relu_features(2, 5, 3, 3, dtype=torch.float32)
    torch.testing.assert_close(compiled(head)(features), head(features))


def test_wrong_options_and_matrix_functions_are_refused():
    with pytest.raises(ValueError, match="kernel: expected `gamma` to be a number > 0 or None, got -1"):
        make("kernel(gamma=-1)", 4)
    with pytest.raises(ValueError, match="kernel: expected `order` to be a whole number >= 1, got 0"):
        make("kernel(order=0)", 4)
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric .* got a vector of"):
        bcnn.Head("improved_bcnn", 4, pooling="kernel")


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--pooling", "kernel(32, order=3)", *more)
    assert metrics["descriptor_length"] == 1 + 32 + 2 * 32
    pooling = bcnn.load(tmp_path / "run" / "model.safetensors").head.pooling
    assert float(pooling.gamma) > 0
    start = gaussian_weights(float(pooling.gamma), 3).float()
    assert torch.allclose(pooling.alpha.cpu(), start) == (not more)  # they learn
    predict(pictures, tmp_path / "run")
