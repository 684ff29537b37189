"""Eq. (9) as printed, its columns of Table 3, and its stopping rule."""

import pytest
import torch

import bcnn

from ...helpers import relative_error, spd, with_spectrum


def printed(A, num_iters):
    """Eq. (9), word for word, on A divided by its Frobenius norm."""
    scale = torch.linalg.matrix_norm(A, keepdim=True)
    eye = torch.eye(A.shape[-1], dtype=A.dtype)
    Y, Z = A / scale, eye
    for _ in range(num_iters):
        T = 3 * eye - Z @ Y
        Y, Z = Y @ T / 2, T @ Z / 2
    return Y * scale.sqrt()


@pytest.mark.parametrize("num_iters", [0, 1, 2, 5, 20])
def test_is_the_printed_iteration(num_iters):
    A = spd(2)
    Z, info = bcnn.sqrtm(A, forward="newton_schulz", num_iters=num_iters, return_info=True)
    assert relative_error(Z, printed(A, num_iters)) < 1e-12
    assert info.num_steps == num_iters


def test_zero_iterations_are_the_matrix_up_to_scale():
    A = spd()
    Z = bcnn.sqrtm(A, forward="newton_schulz", num_iters=0)
    assert relative_error(Z / torch.linalg.matrix_norm(Z), A / torch.linalg.matrix_norm(A)) < 1e-14


def test_default_is_five_steps():
    _, info = bcnn.sqrtm(spd(), forward="newton_schulz", return_info=True)
    assert info.num_steps == 5


def test_stops_at_the_tolerance():
    A = spd(3)
    Z, info = bcnn.sqrtm(A, forward="newton_schulz", tol=1e-6, return_info=True)
    assert 5 < info.num_steps < 20
    assert relative_error(Z, bcnn.sqrtm(A)) < 1e-6
    zero, info = bcnn.sqrtm(torch.zeros(3, 3), forward="newton_schulz", tol=1e-6, return_info=True)
    assert torch.equal(zero, torch.zeros(3, 3))
    assert info.num_steps == 1


def test_a_tolerance_out_of_reach_is_reported():
    A = spd(d=40, dtype=torch.float32)
    with pytest.warns(bcnn.NotConvergedWarning, match="newton_schulz: expected a relative change below tol=1.0e-12"):
        Z = bcnn.sqrtm(A, forward="newton_schulz", tol=1e-12)
    assert relative_error(Z, bcnn.sqrtm(A.double())) < 1e-4


@pytest.mark.parametrize("forward", ["newton_schulz", "minimax"])
def test_scales(forward):
    A = spd(cond=10)
    exact = bcnn.sqrtm(A)
    options = {"num_iters": 25} if forward == "newton_schulz" else {}
    for scale in ("frobenius", "trace", torch.full((1, 1), 1.1, dtype=A.dtype)):
        assert relative_error(bcnn.sqrtm(A, forward=forward, scale=scale, **options), exact) < 1e-11


def test_minimax_needs_a_third_of_the_steps():
    A = with_spectrum([1e6, 1e3, 1.0], dtype=torch.float64)
    lower = 1.0 / torch.linalg.matrix_norm(A).item()
    Z, info = bcnn.sqrtm(A, forward="minimax", lower=lower, tol=1e-5, return_info=True)
    _, newton = bcnn.sqrtm(A, forward="newton_schulz", tol=1e-5, return_info=True)
    assert relative_error(Z, bcnn.sqrtm(A)) < 1e-5
    assert info.num_steps == 7
    assert newton.num_steps > 2 * info.num_steps


def test_minimax_leaves_what_lies_below_its_range_too_small_and_nothing_else():
    A = torch.diag(torch.tensor([1.0, 0.1, 1e-9], dtype=torch.float64))
    Z = bcnn.sqrtm(A, forward="minimax", lower=1e-3).diagonal()
    assert torch.allclose(Z[:2], A.diagonal()[:2].sqrt(), rtol=1e-12)
    assert 0 < Z[2] < 1e-9**0.5


@pytest.mark.parametrize("num_iters", [1, 3, 6])
def test_minimax_with_few_steps_is_an_approximation_from_below(num_iters):
    A = torch.diag(torch.logspace(0, -8, 9, dtype=torch.float64))
    Z, info = bcnn.sqrtm(A, forward="minimax", num_iters=num_iters, return_info=True)
    assert info.num_steps <= num_iters
    assert (Z.diagonal() <= A.diagonal().sqrt() * (1 + 1e-12)).all()


def test_the_plain_products_are_stable_at_the_papers_condition_number():
    from bcnn.bench.regimes import paper

    A = paper(2, 256, torch.Generator().manual_seed(0)).float()
    exact = bcnn.sqrtm(A.double())
    assert relative_error(bcnn.sqrtm(A, forward="newton_schulz", num_iters=25), exact) < 1e-5
    lower = 1 / torch.linalg.matrix_norm(A).max().item()
    assert relative_error(bcnn.sqrtm(A, forward="minimax", tol=1e-5, lower=lower), exact) < 1e-5


def test_mirrored_products_are_unstable():
    """Why the iterations do not compute half of each product, although every exact iterate is symmetric."""
    from bcnn.bench.regimes import paper

    def mirrored(X, Y):
        upper = (X @ Y).triu()
        return upper + upper.triu(1).mT

    def root(A, product):
        scale = torch.linalg.matrix_norm(A, keepdim=True)
        eye = torch.eye(A.shape[-1])
        Y, Z = A / scale, eye
        for _ in range(20):
            T = 1.5 * eye - 0.5 * product(Z, Y)
            Y, Z = product(Y, T), product(T, Z)
        return Y * scale.sqrt()

    A = paper(1, 256, torch.Generator().manual_seed(0)).float()
    exact = bcnn.sqrtm(A.double())
    plain = relative_error(root(A, torch.matmul), exact)
    assert plain < 1e-5
    assert not relative_error(root(A, mirrored), exact) < 100 * plain  # or NaN
