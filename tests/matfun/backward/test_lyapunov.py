"""Solvers behind the rule, and gradients at singular matrices as features see them."""

import pytest
import torch

import bcnn

from ...helpers import gradient, random_like, relative_error, solver_options, spd


@pytest.mark.parametrize("forward", ["eigen", "minimax"])
@pytest.mark.parametrize("options", list(solver_options()), ids=str)
def test_every_solver_gives_the_same_gradient(forward, options):
    A, G = spd(2, 2), random_like(spd(2, 2))
    X = gradient(lambda A: bcnn.sqrtm(A, forward=forward, backward="lyapunov", **options), A, G)
    assert relative_error(X, gradient(lambda A: bcnn.sqrtm(A, backward="loewner"), A, G)) < 1e-8


@pytest.mark.parametrize("options", list(solver_options()), ids=str)
def test_second_derivatives_with_every_solver(options):
    A = spd(d=3, cond=4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda A: bcnn.sqrtm(A, **options), (A,))


def test_third_derivative():
    a = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    y = bcnn.sqrtm(a * torch.eye(2, dtype=torch.float64))[0, 0]
    for expected in (2**-0.5 / 2, -(2**-1.5) / 4, 3 * 2**-2.5 / 8):
        (y,) = torch.autograd.grad(y, a, create_graph=True)
        assert y.item() == pytest.approx(expected, rel=1e-12)


def test_dead_channels_without_a_ridge():
    """Through features the gradient is exact although dA/dZ is infinite between dead channels."""
    X = torch.relu(torch.randn(6, 30, dtype=torch.float64))
    X[3:] = 0
    G = random_like(torch.zeros(6, 6, dtype=torch.float64))
    leaf = X.clone().requires_grad_()
    (bcnn.sqrtm(leaf @ leaf.mT / 30) * G).sum().backward()
    small = X[:3].clone().requires_grad_()
    (bcnn.sqrtm(small @ small.mT / 30) * G[:3, :3]).sum().backward()
    assert relative_error(leaf.grad[:3], small.grad) < 1e-12
    assert leaf.grad.isfinite().all()


def test_bfloat16_gradient_is_the_rounded_float32_one():
    A = spd(2, dtype=torch.bfloat16)
    G = random_like(A)
    exact = gradient(bcnn.sqrtm, A.float(), G.float())
    assert relative_error(gradient(bcnn.sqrtm, A, G), exact) < 2 * torch.finfo(torch.bfloat16).eps
