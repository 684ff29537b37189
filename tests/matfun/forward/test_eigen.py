"""Precision and domain of the decompositions."""

import pytest
import torch

import bcnn
from bcnn.bench.matfun import SCALARS, reference
from bcnn.bench.regimes import REGIMES

from ...helpers import gradient, random_like, relative_error, with_spectrum


def regime(name, d=128, batch=2):
    A = REGIMES[name](batch, d, torch.Generator().manual_seed(0)).float()
    G = random_like(A)
    return A, (G + G.mT) / 2


@pytest.mark.parametrize("forward", ["eigen", "svd"])
def test_high_precision_in_the_paper_regime(forward):
    A, G = regime("paper")
    Z_exact, X_exact = reference(A, G, torch.sqrt)
    high = {"forward": forward}  # the default
    assert relative_error(bcnn.sqrtm(A, **high), Z_exact) < 1e-6
    assert relative_error(gradient(lambda A: bcnn.sqrtm(A, **high), A, G), X_exact) < 1e-5
    assert relative_error(bcnn.sqrtm(A, forward=forward, precision="fast"), Z_exact) > 1e-5  # so the default matters


@pytest.mark.parametrize(("function", "name"), [(bcnn.logm, "log"), (lambda A: bcnn.powm(A, 0.3), "power")])
@pytest.mark.parametrize("where", REGIMES)
def test_log_and_power_are_trainable_in_every_regime_by_default(function, name, where):
    A, G = regime(where)
    _, X_exact = reference(A, G, SCALARS[name])
    assert relative_error(gradient(function, A, G), X_exact) < 1e-3


@pytest.mark.parametrize("where", REGIMES)
def test_the_default_root_has_no_nan_in_any_regime(where):
    A, G = regime(where)
    Z_exact, X_exact = reference(A, G, torch.sqrt)
    assert relative_error(bcnn.sqrtm(A), Z_exact) < 2e-3
    assert relative_error(gradient(bcnn.sqrtm, A, G), X_exact) < 0.1


def test_logm_raises_what_lies_below_rounding_and_counts_it():
    A = with_spectrum([1.0, 0.5, 0.0, 0.0], dtype=torch.float32)
    with pytest.warns(bcnn.ClampedSpectrumWarning, match="logm: 2 of 4 eigenvalues lie below the rounding of A"):
        Z = bcnn.logm(A)
    low = torch.linalg.eigvalsh(Z).min().exp()
    assert low.item() == pytest.approx(torch.finfo(torch.float32).eps, rel=1e-3)
    with pytest.warns(bcnn.ClampedSpectrumWarning):
        assert gradient(bcnn.logm, A, torch.eye(4)).isfinite().all()


def test_a_negative_power_is_a_pseudo_inverse_no_more_than_the_logarithm():
    A = with_spectrum([1.0, 0.5, 0.0], dtype=torch.float32)
    with pytest.warns(bcnn.ClampedSpectrumWarning, match="powm: 1 of 3"):
        assert bcnn.powm(A, -0.5).isfinite().all()


@pytest.mark.parametrize("function", [bcnn.logm, lambda A: bcnn.powm(A, -1.0)])
def test_a_zero_matrix_has_no_logarithm_and_no_inverse(function):
    batch = torch.stack([torch.eye(2), torch.zeros(2, 2)])
    with pytest.raises(bcnn.NotPositiveDefiniteError, match=r"1 of 2 matrices, first at index \(1,\)"):
        function(batch)


def test_rounding_below_zero_is_not_an_error():
    X = torch.randn(64, 3)
    A = X @ X.mT  # eigenvalues of about -1e-6 among those of 100
    assert torch.linalg.eigvalsh(A).min() < 0
    assert bcnn.sqrtm(A).isfinite().all()
