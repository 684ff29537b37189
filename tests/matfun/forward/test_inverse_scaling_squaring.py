"""The logarithm by repeated roots."""

import pytest
import torch

import bcnn

from ...helpers import reference, relative_error, spd, with_spectrum


@pytest.mark.parametrize("cond", [1.0, 10.0, 1e6, 1e12])
def test_any_condition_number(cond):
    A = spd(2, cond=cond)
    Z = bcnn.logm(3 * A, forward="inverse_scaling_squaring")
    assert relative_error(Z, reference("log", 3 * A)) < 1e-12 * max(cond**0.5, 100)


def test_float32_keeps_the_digits_the_docstring_promises():
    A = with_spectrum([1e6, 1e5, 1e3, 1.0], dtype=torch.float32)
    lower = 1 / torch.linalg.matrix_norm(A).item()
    Z = bcnn.logm(A, forward="inverse_scaling_squaring", lower=lower)
    assert relative_error(Z, reference("log", A)) < 1e-3


def test_the_number_of_roots_can_be_given():
    A = spd(cond=10)
    for num_roots in (3, 6):
        Z = bcnn.logm(A, forward="inverse_scaling_squaring", num_roots=num_roots, lower=1e-2)
        assert relative_error(Z, reference("log", A)) < 1e-10


def test_identity_and_singular():
    assert bcnn.logm(torch.eye(3), forward="inverse_scaling_squaring").abs().max() < 1e-5
    with pytest.raises(bcnn.NotPositiveDefiniteError, match="full rank"):
        bcnn.logm(torch.diag(torch.tensor([1.0, 0.0])), forward="inverse_scaling_squaring")


def test_too_few_roots_are_refused():
    with pytest.raises(ValueError, match=r"expected `num_roots` >= 3 for lower=1.0e-06, got 0"):
        bcnn.logm(spd(), forward="inverse_scaling_squaring", num_roots=0, lower=1e-6)
    with pytest.raises(ValueError, match="`num_roots` to be a whole number"):
        bcnn.logm(spd(), forward="inverse_scaling_squaring", num_roots=-1)
