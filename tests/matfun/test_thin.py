"""The thin path equals the thick one: values, gradients in X, ridge and exponent, at every edge."""

from functools import partial

import pytest
import torch

import bcnn
from bcnn.errors import NotFiniteError, SecondDerivativeError
from bcnn.linalg.operand import Factored
from bcnn.matfun.functions import FUNCTIONS
from bcnn.matfun.thin import MAX_SHARE_CPU, is_thin, thin_matrix_function

from ..helpers import FUNCTION, random_like, relative_error
from ..pooling.helpers import relu_features

P = torch.tensor(0.3, dtype=torch.float64)
THICK = {name: (partial(FUNCTION[name], precision="high")) for name in FUNCTIONS}


def thin(name, X, ridge, p=P):
    return thin_matrix_function(FUNCTIONS[name], X, ridge, p)


def thick(name, X, ridge):
    return THICK[name](Factored(X, ridge).form())


def edge_cases():
    X = relu_features(3, 7, 4)
    dead = X.clone()
    dead[:, 2] = 0
    repeated = X.clone()
    repeated[..., 1] = repeated[..., 0]
    masked = X.clone()
    masked[..., 2:] = 0
    orthonormal = torch.linalg.qr(relu_features(3, 7, 4)).Q  # every eigenvalue of the Gram matrix is 1
    return {"usual": X, "dead channel": dead, "repeated location": repeated, "masked locations": masked,
            "black": torch.zeros_like(X), "equal eigenvalues": orthonormal, "one location": X[..., :1],
            "tiny": 1e-7 * X, "huge": 1e6 * X}  # fmt: skip


@pytest.mark.parametrize("kind", edge_cases())
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("share", [1e-6, 1.0])
def test_equals_the_thick_path(name, kind, share):
    X = edge_cases()[kind].requires_grad_()
    # Relative to the features, where there are any: the thick path loses digits with the condition number, 1e-16 x 1e6.
    ridge = (share * X.detach().square().sum((-2, -1)).clamp_min(1.0)).requires_grad_()
    Z, expected = thin(name, X, ridge), thick(name, X, ridge)
    size = max(float(expected.detach().abs().max()), 1.0)
    torch.testing.assert_close(Z / size, expected / size, rtol=0, atol=1e-9)
    G = random_like(Z)
    results = torch.autograd.grad(Z, (X, ridge), G)
    references = torch.autograd.grad(expected, (X, ridge), G)
    for result, reference in zip(results, references, strict=True):
        size = max(float(reference.abs().max()), 1e-8)
        torch.testing.assert_close(result / size, reference / size, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["usual", "dead channel", "repeated location", "black", "equal eigenvalues"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradient_matches_finite_differences(name, kind):
    X = edge_cases()[kind][:1].requires_grad_()
    ridge = torch.tensor([0.1], dtype=torch.float64, requires_grad=True)
    p = P.clone().requires_grad_()
    assert torch.autograd.gradcheck(partial(thin, name), (X, ridge, p))


def test_learned_exponent_has_the_thick_gradient():
    X, ridge = relu_features(2, 6, 3), torch.tensor([0.1, 0.5], dtype=torch.float64)
    p = P.clone().requires_grad_()
    G = random_like(Factored(X, ridge).form())
    (result,) = torch.autograd.grad(thin("power", X, ridge, p), p, G)
    (expected,) = torch.autograd.grad(bcnn.powm(Factored(X, ridge).form(), p), p, G)
    torch.testing.assert_close(result, expected)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_features_keep_the_promised_digits(name):
    d, n = 96, 40
    X = relu_features(4, d, n, dtype=torch.float32) * torch.logspace(0, -2, d)[:, None]
    X = X / X.square().sum((-2, -1), keepdim=True).sqrt()
    ridge = torch.full((4,), 1e-6)  # condition number 10^6
    G = random_like(X.new_empty(4, d, d))
    results = []
    for features in (X, X.double()):
        leaf = features.clone().requires_grad_()
        Z = thin(name, leaf, ridge.to(leaf)) if leaf.dtype == torch.float32 else thick(name, leaf, ridge.to(leaf))
        results.append((Z, torch.autograd.grad(Z, leaf, G.to(leaf))[0]))
    (Z, gradient), (Z_exact, gradient_exact) = results
    assert relative_error(Z, Z_exact) <= 1e-5
    assert relative_error(gradient, gradient_exact) <= 1e-4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_gradients_keep_all_digits_of_weak_features(name):
    X = torch.linalg.qr(relu_features(1, 24, 6)).Q * torch.logspace(0, -6, 6, dtype=torch.float64)
    X.requires_grad_()
    ridge = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)  # well conditioned: the thick path is exact
    G = random_like(X.new_empty(1, 24, 24))
    result, grad_ridge = torch.autograd.grad(thin(name, X, ridge), (X, ridge), G)
    expected, expected_ridge = torch.autograd.grad(thick(name, X, ridge), (X, ridge), G)
    assert relative_error(result, expected) < 2e-14
    torch.testing.assert_close(grad_ridge, expected_ridge, rtol=1e-13, atol=0)


def test_any_leading_dimensions_and_none():
    X, ridge = relu_features(2, 3, 6, 4), torch.rand(2, 3, dtype=torch.float64) + 0.1
    Z = thin("sqrt", X, ridge)
    assert Z.shape == (2, 3, 6, 6)
    torch.testing.assert_close(Z[1, 2], thin("sqrt", X[1, 2], ridge[1, 2]))
    assert thin("sqrt", X[:0], ridge[:0]).shape == (0, 3, 6, 6)


def test_vmap_and_per_image_gradients():
    X, ridge = relu_features(4, 6, 3), torch.full((4,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(torch.func.vmap(partial(thin, "sqrt"))(X, ridge), thin("sqrt", X, ridge))
    each = torch.func.vmap(torch.func.grad(lambda x, r: thin("sqrt", x, r).square().sum()))(X, ridge)
    leaf = X.clone().requires_grad_()
    thin("sqrt", leaf, ridge).square().sum().backward()
    torch.testing.assert_close(each, leaf.grad)


def test_a_second_derivative_is_refused():
    X = relu_features(1, 5, 3).requires_grad_()
    Z = thin("sqrt", X, torch.ones(1, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(Z.square().sum(), X, create_graph=True)
    with pytest.raises(SecondDerivativeError, match="thin=False"):
        gradient.sum().backward()


def test_forward_mode_is_refused_with_the_remedy():
    X, ridge = relu_features(1, 5, 3), torch.ones(1, dtype=torch.float64)
    with pytest.raises(NotImplementedError, match=r"forward-mode derivatives .* thin=False"):
        torch.func.jvp(lambda x: thin("sqrt", x, ridge), (X,), (X,))


def test_the_product_for_large_matrices():
    X, ridge = relu_features(3, 400, 20), torch.full((3,), 0.1, dtype=torch.float64)
    torch.testing.assert_close(thin("sqrt", X, ridge), thick("sqrt", X, ridge))


@pytest.mark.parametrize("scale", [1e-12, 1e-8, 1.0, 1e8, 1e12])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_float32_features_of_any_size(name, scale):
    X = (scale * relu_features(2, 24, 9)).float()
    ridge = (1e-3 * X.double().square().sum((-2, -1))).clamp_min(1e-30).float()
    G = random_like(X @ X.mT)
    wide = (X.double().requires_grad_(), ridge.double().requires_grad_())
    expected = thick(name, *wide)
    references = torch.autograd.grad(expected, wide, G.double())
    narrow = (X.requires_grad_(), ridge.requires_grad_())
    Z = thin(name, *narrow)
    assert relative_error(Z.detach(), expected.detach()) < 1e-6
    for result, reference in zip(torch.autograd.grad(Z, narrow, G), references, strict=True):
        size = reference.abs().max()
        torch.testing.assert_close(result.double() / size, reference / size, rtol=0, atol=1e-4)


@pytest.mark.parametrize("function", [bcnn.sqrtm, bcnn.logm, partial(bcnn.powm, p=0.3)])
@pytest.mark.parametrize("thin", [True, False])
def test_half_precision_is_computed_in_float32(function, thin):
    X, ridge = relu_features(2, 24, 9).bfloat16(), torch.full((2,), 0.01)
    expected = function(Factored(X.double(), ridge.double()).form())
    Z = function(Factored(X, ridge), thin=thin)
    assert Z.dtype == torch.bfloat16
    assert relative_error(Z, expected) < 2**-8


@pytest.mark.parametrize("thin", [True, False])
def test_a_ridge_is_a_number_for_all_or_for_each(thin):
    X = relu_features(3, 8, 3)
    expected = bcnn.sqrtm(Factored(X, torch.full((3,), 0.1, dtype=torch.float64)).form())
    for ridge in (0.1, torch.tensor(0.1, dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64)):
        torch.testing.assert_close(bcnn.sqrtm(Factored(X, ridge), thin=thin), expected, atol=1e-9, rtol=0)
    for wrong in (torch.ones(2), torch.ones(3, 1), "0.1"):
        with pytest.raises(ValueError, match=r"sqrtm: expected the ridge of a Factored matrix to be None, a number"):
            bcnn.sqrtm(Factored(X, wrong), thin=thin)


def test_what_is_not_a_finite_number_is_refused_before_and_after():
    X, ridge = relu_features(2, 8, 3).float(), torch.ones(2)
    with pytest.raises(NotFiniteError, match="powm: expected a result within the range of torch"):
        bcnn.powm(Factored(1e14 * X, ridge), 1.5, thin=True)
    X[1, 0, 0] = torch.nan
    with pytest.raises(NotFiniteError, match=r"sqrtm: expected finite entries.* first at index \(1,\)"):
        bcnn.sqrtm(Factored(X, ridge), thin=True)


@pytest.mark.parametrize("n", [5, 9])
def test_no_fewer_locations_than_channels_are_refused(n):
    with pytest.raises(ValueError, match=f"expected fewer locations than channels, got {n} and 5; pool first"):
        thin("sqrt", relu_features(3, 5, n), torch.ones(3, dtype=torch.float64))


def test_pays_off_below_the_measured_share():
    def is_faster(d, n):
        return is_thin(Factored(torch.empty(1, d, n), torch.ones(1)), None)

    assert is_faster(512, 196)
    assert not is_faster(512, 784)
    assert not is_faster(100, int(100 * MAX_SHARE_CPU) + 1)
