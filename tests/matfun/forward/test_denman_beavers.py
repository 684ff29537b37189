"""Eq. (8) as printed, and what scaling saves."""

import pytest
import torch

import bcnn

from ...helpers import relative_error, spd, with_spectrum


def test_unscaled_is_the_printed_iteration():
    A = spd(2)
    A = A / torch.linalg.matrix_norm(A, keepdim=True)
    Y, Z = A, torch.eye(6, dtype=A.dtype).expand_as(A)
    for _ in range(4):
        Y, Z = (Y + Z.inverse()) / 2, (Z + Y.inverse()) / 2
    assert relative_error(bcnn.sqrtm(A, forward="denman_beavers", scaled=False, num_iters=4), Y) < 1e-13


def test_scaling_saves_most_steps_at_the_papers_condition_number():
    A = with_spectrum([1e6, 1e4, 1e2, 1.0])
    _, scaled = bcnn.sqrtm(A, forward="denman_beavers", tol=1e-10, return_info=True)
    Z, plain = bcnn.sqrtm(A, forward="denman_beavers", tol=1e-10, scaled=False, return_info=True)
    assert scaled.num_steps <= 8 < 13 <= plain.num_steps
    assert relative_error(Z, bcnn.sqrtm(A)) < 1e-9


def test_a_singular_matrix_is_refused_with_the_remedy():
    A = torch.stack([torch.eye(3), torch.diag(torch.tensor([1.0, 1.0, 0.0]))])
    with pytest.raises(bcnn.NotPositiveDefiniteError, match=r"1 of 2.*index \(1,\).*full rank.*forward='eigen'"):
        bcnn.sqrtm(A, forward="denman_beavers")


def test_without_checks_a_singular_matrix_gives_nan_and_not_a_wrong_result():
    A = torch.stack([torch.eye(3), torch.zeros(3, 3)])
    Z = bcnn.sqrtm(A, forward="denman_beavers", check=False)
    assert relative_error(Z[0], torch.eye(3)) < 1e-6
    assert Z[1].isnan().all()


def test_no_iterations_are_the_matrix_itself_up_to_scale():
    A = spd()
    expected = A / torch.linalg.matrix_norm(A).sqrt()
    assert relative_error(bcnn.sqrtm(A, forward="denman_beavers", num_iters=0), expected) < 1e-15


@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1e12, 1e30])
def test_the_number_of_steps_does_not_depend_on_the_unit(unit, scaled):
    A = unit * torch.eye(3, dtype=torch.float64)
    expected = unit**0.5 * torch.eye(3, dtype=torch.float64)
    assert relative_error(bcnn.sqrtm(A, forward="denman_beavers", scaled=scaled), expected) < 1e-12
