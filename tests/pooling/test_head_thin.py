"""The thin path of a head: when it is taken, what it gives, what it checks."""

import pytest
import torch

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.matfun.thin import is_thin
from bcnn.pooling.head import Head

from .helpers import Products, goes_thin, relu_features


@pytest.mark.parametrize("name", ["matrix_sqrt", "matrix_log", "matrix_power(0.3)"])
def test_thin_is_chosen_and_equals_thick(name):
    features = relu_features(2, 64, 5, 5)
    options = {"normalize": (name, "signed_sqrt", "l2"), "eps": 1e-2}
    head = Head(**options)
    assert goes_thin(head, 64, 25)
    torch.testing.assert_close(head(features), Head(thin=False, **options)(features))
    assert not goes_thin(head, 16, 25)
    assert not goes_thin(Head(thin=False, **options), 64, 25)


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "matrix_sqrt(forward='newton_schulz')"},
        {"normalize": "matrix_sqrt(backward='lyapunov')"},
        {"normalize": ("l2", "matrix_sqrt")},
        {"eps": 0.0},
    ],
)
def test_a_named_method_or_no_ridge_is_never_thin(options):
    assert not goes_thin(Head(**options), 64, 5)
    with pytest.raises(ValueError, match="expected thin=True with"):
        Head(thin=True, **options)


def test_precision_may_be_asked_for_on_the_thin_path():
    assert goes_thin(Head(normalize="matrix_sqrt(precision='high')"), 64, 5)


def test_a_matrix_that_is_not_formed_goes_into_a_matrix_function():
    X = relu_features(2, 16, 3)
    for ridge in (torch.tensor([0.1, 0.2], dtype=torch.float64), None):
        A = Factored(X, ridge)
        assert is_thin(A, None) == (ridge is not None)
        for thin in (None, False, True):
            torch.testing.assert_close(bcnn.sqrtm(A, thin=thin), bcnn.sqrtm(A.form()))
            torch.testing.assert_close(bcnn.powm(A, 0.3, thin=thin), bcnn.powm(A.form(), 0.3))
    Z, info = bcnn.sqrtm(Factored(X, torch.ones(2, dtype=torch.float64)), return_info=True)
    assert info.residual.max() < 1e-12
    torch.testing.assert_close(Z @ Z, Factored(X, torch.ones(2, dtype=torch.float64)).form())


def test_a_learned_exponent_is_a_parameter_on_both_paths():
    features = relu_features(2, 16, 2, 2)
    gradients = []
    for thin in (True, False):
        head = Head(normalize=("matrix_power(0.4, learnable=True)", "l2"), thin=thin, eps=0.1).double()
        assert [name for name, _ in head.named_parameters()] == ["normalizations.0.p"]
        weight = torch.arange(head.length(16), dtype=torch.float64).sin()
        (head(features) @ weight).sum().backward()
        gradients.append(head.normalizations[0].p.grad)
    torch.testing.assert_close(*gradients)


def test_what_a_head_knows_of_the_spectrum_saves_products_and_error():
    """On an accelerator; run here on the CPU with the methods that it would take."""
    from bcnn.matfun.plan import methods_for

    features = relu_features(2, 512, 28, 28, dtype=torch.float32)
    pooled = Head("improved_bcnn").pool(features)
    A, lower = pooled.form(), pooled.least
    spectrum = torch.linalg.eigvalsh(A.double())
    assert lower <= (spectrum.amin(-1) / torch.linalg.matrix_norm(A.double())).min()
    known = methods_for("sqrt", "cuda", 512, lower)
    assert set(known) == {"lower", "solver_lower"}
    assert methods_for("sqrt", "cpu", 512, lower) == {}  # float64 there
    assert methods_for("sqrt", "cuda", 8, lower) == {}  # eigh is as fast there

    G = torch.randn(A.shape, dtype=torch.float64)
    G = G + G.mT
    exact = A.double().requires_grad_()
    Z = bcnn.sqrtm(exact)
    (X,) = torch.autograd.grad(Z, exact, G)
    counts, errors = [], []
    for options in ({}, known):
        leaf = A.clone().requires_grad_()
        with Products() as products:
            root = bcnn.sqrtm(leaf, forward="minimax", solver="iterative", check=False, **options)
            (gradient,) = torch.autograd.grad(root, leaf, G.float())
        counts.append(products.count)
        errors.append([float((a - b).norm() / b.norm()) for a, b in ((root, Z), (gradient, X))])
    assert counts[1] < 0.75 * counts[0]
    assert errors[1][0] < min(errors[0][0], 1e-5)
    assert errors[1][1] < min(errors[0][1], 1e-4)


def test_the_thin_path_checks_as_the_other_does():
    X = relu_features(2, 16, 3)
    A = Factored(X, torch.tensor([1.0, -1.0], dtype=torch.float64))
    with pytest.raises(bcnn.NotPositiveDefiniteError, match="expected a ridge > 0"):
        bcnn.sqrtm(A)
    good = Factored(X, torch.ones(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected a finite `p`"):
        bcnn.powm(good, float("nan"))
    with pytest.raises(ValueError, match="to broadcast with the leading dimensions"):
        bcnn.powm(good, torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected `thin` to be True, False or None, got 'yes'"):
        bcnn.sqrtm(good, thin="yes")


def test_thin_is_for_the_first_function():
    head = Head(normalize=["matrix_sqrt", "matrix_power(0.9)", "l2"], thin=True)
    assert head.config.normalize == ("matrix_sqrt(thin=True)", "matrix_power(p=0.9)", "l2")
