"""Powers of entries, of singular values, and as tangent vectors; the Cholesky factor's logarithm."""

import numpy as np
import pytest
import scipy.linalg
import torch

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.pooling.cholesky_log import cholesky_log
from bcnn.pooling.normalize import NORMALIZATIONS
from bcnn.pooling.signed_power import signed_power
from bcnn.pooling.singular_power import singular_power
from bcnn.pooling.tangent_power import tangent_power
from bcnn.pooling.triangle import full_matrix
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, naive_matrix, relu_features


def spd(*batch, d=5, ridge=0.3):
    X = torch.randn(*batch, d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return X @ X.mT + ridge * torch.eye(d, dtype=torch.float64)


# --- entries ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.3, 0.5, 0.75, 1.0])
def test_signed_power_is_the_power(p):
    x = torch.randn(3, 50, dtype=torch.float64)
    torch.testing.assert_close(signed_power(x, p, delta=1e-9), x.sign() * x.abs() ** p, rtol=1e-5, atol=1e-9)
    weights = torch.rand(50, dtype=torch.float64) + 0.5
    mean = (x.square() * weights).sum(-1, keepdim=True) / weights.sum()
    expected = x * (x.square() + 0.01 * mean) ** ((p - 1) / 2)
    torch.testing.assert_close(signed_power(x, p, delta=0.1, weights=weights), expected)


def test_signed_power_with_a_half_is_the_signed_square_root():
    x = torch.randn(3, 50, dtype=torch.float64)
    torch.testing.assert_close(signed_power(x, 0.5), bcnn.signed_sqrt(x))
    torch.testing.assert_close(signed_power(1e20 * x.float(), 0.75), 1e15 * signed_power(x.float(), 0.75))


def test_signed_power_has_gradients_at_zero_in_every_precision():
    x = torch.tensor([[1.0, 0.0, -2.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: signed_power(x, delta=0.1), (x[:1].clone().requires_grad_(),))
    for dtype in (torch.float32, torch.bfloat16):
        leaf = x.to(dtype).requires_grad_()
        found = signed_power(leaf)
        found.sum().backward()
        assert found.dtype == dtype
        assert leaf.grad.isfinite().all()
        assert (found[1] == 0).all()
    assert signed_power(x[:, :0]).shape == (2, 0)


def test_o2p_with_carreiras_power():
    features = relu_features(2, 5, 40)
    found = bcnn.describe(features, "o2p", normalize=("matrix_log", "signed_power(0.75, delta=1e-9)", "l2"))
    for Z, points in zip(full_matrix(found), locations(features), strict=True):
        log = scipy.linalg.logm(naive_matrix(points, 0.003, "trace"))
        expected = np.sign(log) * np.abs(log) ** 0.75
        np.testing.assert_allclose(Z, expected / np.linalg.norm(expected), rtol=1e-6, atol=1e-8)


# --- singular values --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (7, 4), (4, 7)])
@pytest.mark.parametrize("p", [0.3, 0.5, 1.0])
def test_singular_power_is_that_of_the_decomposition(shape, p):
    A = torch.randn(2, 3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    U, s, Vt = np.linalg.svd(A.numpy(), full_matrices=False)
    expected = U * s[..., None, :] ** p @ Vt
    np.testing.assert_allclose(singular_power(A, p, delta=1e-6), expected, rtol=1e-6, atol=1e-7)


def test_singular_power_of_a_symmetric_matrix_is_its_power():
    A = spd(3)
    torch.testing.assert_close(singular_power(A, delta=1e-6), bcnn.sqrtm(A))
    torch.testing.assert_close(singular_power(A, 0.3, delta=1e-6), bcnn.powm(A, 0.3))


def test_singular_power_turns_with_the_bases():
    A = torch.randn(6, 4, dtype=torch.float64)
    Q, R = (torch.linalg.qr(torch.randn(d, d, dtype=torch.float64))[0] for d in (6, 4))
    torch.testing.assert_close(singular_power(Q @ A @ R), Q @ singular_power(A) @ R)
    torch.testing.assert_close(singular_power(1e6 * A), 1e3 * singular_power(A))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_gradient_of_singular_power(shape):
    A = torch.randn(2, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A[1] = 0
    A[1, 0, 1] = A[1, 1, 0] = 1  # equal singular values, and zeros
    assert torch.autograd.gradcheck(lambda A: singular_power(A, delta=0.1), (A.requires_grad_(),))


def test_singular_power_in_every_precision_and_at_zero(compiled):
    A = torch.randn(2, 6, 4, dtype=torch.float64)
    A[1] = 0
    exact = singular_power(A)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1)):
        leaf = A.to(dtype).requires_grad_()
        found = singular_power(leaf)
        found.sum().backward()
        assert found.dtype == dtype
        assert leaf.grad.isfinite().all()
        torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)
    assert singular_power(A[:0]).shape == (0, 6, 4)
    torch.testing.assert_close(compiled(singular_power)(A), exact)


def test_two_equal_networks_are_the_symmetric_one():
    features = relu_features(2, 5, 6, 6)
    both = {"pooling": "asymmetric", "triangle": False}
    plain = bcnn.describe(features, "bcnn", triangle=False)
    torch.testing.assert_close(bcnn.describe([features, features], "bcnn", **both), plain)
    normalize = ("singular_power(delta=1e-6)", "signed_sqrt", "l2")
    found = bcnn.describe([features, features], "bcnn", normalize=normalize, **both)
    expected = bcnn.describe(features, "improved_bcnn", eps=0, triangle=False)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_matrices_of_the_wrong_kind_are_refused():
    with pytest.raises(ValueError, match=r"singular_power: expected a matrix, got a symmetric .*matrix_sqrt"):
        bcnn.Head("bcnn", 5, normalize="singular_power")
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric .* got a 5 x 4 matrix"):
        bcnn.Head("improved_bcnn", [5, 4], pooling="asymmetric")
    with pytest.raises(ValueError, match=r"singular_power: expected `p` to be a number in \(0, 1\], got 2"):
        NORMALIZATIONS.make("singular_power(2)")
    with pytest.raises(ValueError, match=r"signed_power: expected `delta` to be a number in \(0, inf\], got 0"):
        NORMALIZATIONS.make("signed_power(delta=0)")
    with pytest.raises(ValueError, match=r"tangent_power: expected `theta` in \[-1, 1\], not 0.*matrix_log"):
        NORMALIZATIONS.make("tangent_power(0)")


# --- tangent vectors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [-0.5, 0.3, 0.5, 1.0])
def test_tangent_power_is_the_formula(theta):
    A = spd(2)
    for own, found, scaled in zip(A, tangent_power(A, theta), tangent_power(A, theta, shift=False), strict=True):
        power = scipy.linalg.fractional_matrix_power(own.numpy(), theta)
        np.testing.assert_allclose(found, (power - np.eye(5)) / theta, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(scaled, power / theta, rtol=1e-8, atol=1e-8)


def test_the_limit_of_tangent_powers_is_the_logarithm():
    A = spd(2)
    errors = [(tangent_power(A, theta) - bcnn.logm(A)).norm() for theta in (1e-1, 1e-3, 1e-5)]
    assert errors[1] < 0.02 * errors[0]
    assert errors[2] < 0.02 * errors[1]


def test_cholesky_log_is_the_formula():
    A = spd(2)
    for own, found in zip(A.numpy(), cholesky_log(A), strict=True):
        L = scipy.linalg.cholesky(own, lower=True)
        lower = np.tril(L, -1) + np.diag(np.log(np.diag(L)))
        np.testing.assert_allclose(found, lower + lower.T, rtol=1e-10, atol=1e-12)
    diagonal = torch.diag(torch.tensor([0.5, 1.0, 8.0], dtype=torch.float64))
    torch.testing.assert_close(cholesky_log(diagonal), bcnn.logm(diagonal))  # the same where nothing is correlated
    with pytest.raises(ArithmeticError, match=r"cholesky_log: expected positive definite matrices, got 1 of 2.*ridge"):
        cholesky_log(torch.stack([A[0], torch.zeros(5, 5, dtype=torch.float64)]))


@pytest.mark.parametrize("function", [tangent_power, cholesky_log])
def test_gradients_factors_and_precision(function, compiled):
    X = relu_features(2, 5, 3)
    ridge = torch.tensor([0.2, 0.5], dtype=torch.float64)
    A = Factored(X, ridge)
    torch.testing.assert_close(function(A), function(A.form()))
    assert torch.autograd.gradcheck(lambda X, r: function(Factored(X, r)), (X.requires_grad_(), ridge.requires_grad_()))
    exact = function(A.form()).detach()
    torch.testing.assert_close(function(A.form().detach().float()).double(), exact, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled(function)(A.form().detach()), exact)


@pytest.mark.parametrize(
    # Without the shift: the covariance of this network's features is so small that what is left beside I is rounding.
    "normalize",
    [("tangent_power(shift=False)", "l2"), ("cholesky_log", "l2"), ("matrix_log", "signed_power", "l2")],
    ids=str,
)
@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more, normalize):
    texts = [word for text in normalize for word in ("--normalize", text)]
    metrics = train(pictures, tmp_path / "run", "--pooling", "covariance", "--proj-dim", "6", *texts, *more)
    assert metrics["descriptor_length"] == 21
    predict(pictures, tmp_path / "run")


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_two_networks_with_roots_of_singular_values(pictures, tmp_path, more):
    texts = ("--normalize", "singular_power", "--normalize", "signed_sqrt", "--normalize", "l2")
    both = ("--backbone", "tiny(proj_dim=6),tiny(cut=relu2, proj_dim=5)", "--pooling", "asymmetric")
    metrics = train(pictures, tmp_path / "run", *both, *texts, *more)
    assert metrics["descriptor_length"] == 30
    predict(pictures, tmp_path / "run")
