"""Divided differences against exact arithmetic (mpmath comes with torch): near, far, equal, zero."""

import mpmath
import pytest
import torch

import bcnn
from bcnn.matfun.functions import FUNCTIONS

PAIRS = [
    (1.0, 1.0), (1.0, 1.0 + 1e-15), (1.0, 1.0 + 1e-8), (1.0, 1.001), (1.0, 2.0), (1e-6, 1e6), (1e-150, 1e-150),
    (1e-300, 1e300), (1e12, 1e12 * (1 + 1e-10)),
]  # fmt: skip


def exact(name, a, b, p):
    mpmath.mp.dps = 60
    g = {"sqrt": mpmath.sqrt, "log": mpmath.log, "power": lambda x: mpmath.power(x, p)}[name]
    slope = {
        "sqrt": lambda x: 1 / (2 * mpmath.sqrt(x)),
        "log": lambda x: 1 / x,
        "power": lambda x: p * mpmath.power(x, p - 1),
    }[name]
    a, b = mpmath.mpf(a), mpmath.mpf(b)
    return float(slope(a) if a == b else (g(a) - g(b)) / (a - b))


@pytest.mark.parametrize("p", [-1.5, -0.5, 0.01, 0.3, 0.5, 1.0, 1.7, 2.0])
@pytest.mark.parametrize("pair", PAIRS)
def test_power(pair, p):
    sigma = torch.tensor(pair, dtype=torch.float64)
    K = FUNCTIONS["power"].divided_difference(sigma, torch.tensor(p, dtype=torch.float64), 1e-16)
    assert K[0, 1].item() == pytest.approx(exact("power", *pair, p), rel=1e-12)
    assert K[1, 0] == K[0, 1]


@pytest.mark.parametrize("name", ["sqrt", "log"])
@pytest.mark.parametrize("pair", PAIRS)
def test_root_and_logarithm(name, pair):
    sigma = torch.tensor(pair, dtype=torch.float64)
    K = FUNCTIONS[name].divided_difference(sigma, None, 0.0)
    assert K[0, 1].item() == pytest.approx(exact(name, *pair, None), rel=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_diagonal_is_the_derivative(name):
    sigma = torch.tensor([0.5, 2.0, 1e4], dtype=torch.float64)
    p = torch.tensor(0.3, dtype=torch.float64) if name == "power" else None
    f = FUNCTIONS[name]
    assert torch.allclose(f.divided_difference(sigma, p, 1e-16).diagonal(), f.dg(sigma, p), rtol=1e-13)


@pytest.mark.parametrize("p", [0.01, 0.5, 1.0, 1.001, 2.0])
def test_against_zero(p):
    K = FUNCTIONS["power"].divided_difference(
        torch.tensor([4.0, 0.0, 0.0], dtype=torch.float64), torch.tensor(p, dtype=torch.float64), 1e-16
    )
    assert K[0, 1].item() == pytest.approx(4.0 ** (p - 1), rel=1e-12)
    assert K[1, 2].item() == pytest.approx(1.0 if p == 1 else 0.0, abs=1e-300)  # infinite for p < 1: taken as 0
    assert K.isfinite().all()


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0])
def test_whole_powers_are_what_they_are(p):
    A = torch.diag(torch.tensor([3.0, 1.0, 0.0], dtype=torch.float64)).requires_grad_()
    expected = {0.0: torch.eye(3, dtype=A.dtype), 1.0: A, 2.0: A @ A}[p]
    assert torch.allclose(bcnn.powm(A, p), expected, atol=1e-15)
    G = torch.arange(9, dtype=torch.float64).reshape(3, 3)
    (X,) = torch.autograd.grad(bcnn.powm(A, p), A, G)
    S = (G + G.mT) / 2
    slope = {0.0: torch.zeros_like(S), 1.0: S, 2.0: (A @ S + S @ A).detach()}[p]
    assert torch.allclose(X, slope, atol=1e-14)


def test_a_batch_of_exponents():
    A = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    p = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    Z = bcnn.powm(A, p)
    assert Z.shape == (3, 2, 2)
    assert torch.allclose(Z[:, 0, 0], torch.tensor([2.0, 4.0, 16.0], dtype=torch.float64))
    assert torch.autograd.gradcheck(lambda A, p: bcnn.powm(A, p), (A.clone().requires_grad_(), p))
    Z.sum().backward()
    assert p.grad.shape == (3,)


def test_the_gradient_of_the_exponent_at_a_singular_matrix():
    A = torch.diag(torch.tensor([4.0, 0.0]))
    p = torch.tensor(0.5, requires_grad=True)
    bcnn.powm(A, p).sum().backward()
    assert p.grad.item() == pytest.approx(2 * torch.log(torch.tensor(4.0)).item(), rel=1e-6)
