"""Every solver solves its equation; the reference is SciPy's."""

import pytest
import torch
from scipy.linalg import solve_continuous_lyapunov

from bcnn import NotPositiveDefiniteError
from bcnn.linalg import lyapunov

from ..helpers import random_like, relative_error, spd, symmetric, with_spectrum


def solve(name, Z, Q, **options):
    return lyapunov.SOLVERS[name](Z, Q, **options, **({"null": 1e-15} if name == "eigen" else {}))


@pytest.mark.parametrize("name", lyapunov.SOLVERS)
def test_solves_the_equation(name):
    Z = spd(2, 3, cond=30)
    Q = symmetric(random_like(Z))
    X = solve(name, Z, Q)
    assert relative_error(Z @ X + X @ Z, Q) < 1e-11
    exact = torch.from_numpy(solve_continuous_lyapunov(Z[1, 2].numpy(), Q[1, 2].numpy()))
    assert relative_error(X[1, 2], exact) < 1e-11


def test_newton_schulz_steps_converge_to_the_same_solution():
    Z = spd(cond=10)
    Q = symmetric(random_like(Z))
    exact = solve("eigen", Z, Q)
    errors = [relative_error(lyapunov.iterative(Z, Q, solver_iters=n), exact) for n in (2, 10, 20)]
    assert errors[0] > 1e-2 > errors[1] > errors[2]
    assert errors[2] < 1e-12


def test_null_vectors_get_zero_and_the_rest_is_exact():
    Z = torch.diag(torch.tensor([2.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    Q = symmetric(random_like(Z))
    X = solve("eigen", Z, Q)
    assert torch.equal(X[2:, 2:], torch.zeros(2, 2, dtype=torch.float64))
    assert torch.allclose((Z @ X + X @ Z - Q)[:2], torch.zeros(2, 4, dtype=torch.float64), atol=1e-14)
    assert relative_error(lyapunov.iterative(Z, Q), X) < 1e-12
    for name in ("kronecker", "bartels_stewart"):
        with pytest.raises(NotPositiveDefiniteError, match=f"solver {name!r} needs a positive definite Z"):
            solve(name, Z, Q)


def test_kronecker_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="d <= 48, got d = 49; use solver='eigen'"):
        lyapunov.kronecker(torch.eye(49), torch.eye(49))


def test_bartels_stewart_keeps_dtype_and_takes_an_empty_batch():
    Z = with_spectrum([1.0, 2.0], dtype=torch.float32)
    assert lyapunov.bartels_stewart(Z, torch.eye(2)).dtype == torch.float32
    assert lyapunov.bartels_stewart(Z.expand(0, 2, 2), torch.zeros(0, 2, 2)).shape == (0, 2, 2)
