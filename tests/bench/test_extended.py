"""The reference is right to extended precision, by matrices whose root is known exactly and by rational arithmetic."""

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
import scipy.linalg
import torch

from bcnn.bench import extended
from bcnn.bench.extended import check_extended, exact_root_and_gradient
from bcnn.errors import ConvergenceError, NotPositiveDefiniteError

EPS = float(np.finfo(np.longdouble).eps)
pytestmark = pytest.mark.skipif(not EPS < 1e-18, reason="no extended precision on this machine")


def integer_root(d, top):
    """L D L^T with L unit lower triangular of -1, 0, 1 and D from `top` down to 1: positive definite."""
    rng = np.random.default_rng(0)
    L = np.tril(rng.integers(-1, 2, (d, d)), -1) + np.eye(d, dtype=np.int64)
    D = np.geomspace(top, 1, d).round().astype(np.int64)
    return (L * D) @ L.T


def symmetric_integers(d):
    G = np.random.default_rng(1).integers(-9, 10, (d, d))
    return G + G.T


def kronecker(Z, G):
    """X of Eq. (7), (I x Z + Z x I) vec X = vec G, by Gauss-Jordan elimination in rational numbers: no rounding."""
    d = len(Z)
    eye = np.eye(d, dtype=np.int64)
    K = np.kron(eye, Z) + np.kron(Z, eye)
    rows = [[Fraction(int(x)) for x in (*k, g)] for k, g in zip(K, G.T.ravel(), strict=True)]
    for i in range(d * d):  # positive definite: no pivoting needed
        rows[i] = [x / rows[i][i] for x in rows[i]]
        for j in range(d * d):
            if j != i and rows[j][i]:
                rows[j] = [x - rows[j][i] * y for x, y in zip(rows[j], rows[i], strict=True)]
    return np.array([row[-1] for row in rows], dtype=object).reshape(d, d).T


def rational(A):
    return np.array([Fraction(*x.as_integer_ratio()) for x in A.ravel()], dtype=object).reshape(A.shape)


def error(value, exact):
    """Relative, Frobenius, formed without rounding; `exact` of integers or fractions."""
    exact = np.vectorize(Fraction, otypes=[object])(exact)
    return sqrt(((rational(value) - exact) ** 2).sum() / (exact**2).sum())


# The bounds are those that `extended` states; the float64 answers that the rounds start from miss them.
@pytest.mark.parametrize(
    ("dtype", "top", "cond"), [(torch.float32, 20, 1e3), (torch.float32, 600, 1e6), (torch.float64, 600_000, 1e12)]
)
def test_integer_root_and_rational_gradient(dtype, top, cond):
    Z, G = integer_root(5, top), symmetric_integers(5)
    A = torch.tensor(Z @ Z).to(dtype)
    assert np.array_equal(A.numpy().astype(np.int64), Z @ Z), "A must be exact in its dtype"
    c = np.linalg.cond(Z) ** 2
    assert cond < c < 100 * cond
    found, gradient = exact_root_and_gradient(A[None], torch.tensor(G).to(dtype)[None])
    assert found.dtype == gradient.dtype == np.longdouble
    assert error(found[0], Z) < EPS * sqrt(c)
    assert error(gradient[0], kronecker(Z, G)) < EPS * c / 10


@pytest.mark.parametrize(("dtype", "d", "top"), [(torch.float32, 16, 1000), (torch.float64, 64, 1_000_000)])
def test_known_eigenvectors(dtype, d, top):
    """With H of Hadamard and U = H / sqrt(d), A = U r^2 U^T and Z = U r U^T are exact for integers r."""
    H = scipy.linalg.hadamard(d)
    r = np.geomspace(1, top, d).round().astype(np.int64)
    A = torch.tensor((H * r**2) @ H.T).to(dtype) / d
    assert np.array_equal((A.double() * d).numpy().astype(np.int64), (H * r**2) @ H.T), "A must be exact in its dtype"
    G = symmetric_integers(d)
    X = H @ ((H.T @ G @ H) / (r[:, None] + r).astype(np.longdouble)) @ H.T / d**2  # the quotients alone are rounded
    Z, gradient = exact_root_and_gradient(A[None], torch.tensor(G).to(dtype)[None])
    assert error(Z[0] * d, (H * r) @ H.T) < EPS * top
    assert error(gradient[0], rational(X)) < EPS * top**2 / 10


def test_every_matrix_is_solved_for_itself():
    Z = np.stack([np.eye(3), 2 * np.eye(3), np.diag([1.0, 2.0, 3.0])])
    G = np.stack([np.zeros((3, 3)), np.ones((3, 3)), np.ones((3, 3))])
    found, gradient = exact_root_and_gradient(torch.from_numpy(Z @ Z), torch.from_numpy(G))
    np.testing.assert_array_equal(found, Z)
    diagonal = np.diagonal(Z, axis1=1, axis2=2).astype(np.longdouble)
    np.testing.assert_allclose(gradient, G / (diagonal[:, :, None] + diagonal[:, None, :]), rtol=4 * EPS)


def test_refusals():
    G = torch.eye(2)[None]
    with pytest.raises(NotPositiveDefiniteError, match=r"got smallest eigenvalue -1\.0e\+00"):
        exact_root_and_gradient(torch.diag(torch.tensor([1.0, -1.0]))[None], G)
    with pytest.raises(NotPositiveDefiniteError, match=r"smallest eigenvalue 0\.0e\+00"):
        exact_root_and_gradient(torch.diag(torch.tensor([1.0, 0.0]))[None], G)
    with pytest.raises(NotImplementedError, match=r"got 2\.2e-16; this machine has no extended precision"):
        check_extended(2.2e-16)
    ones = np.ones((2, 2), dtype=np.longdouble)
    with pytest.raises(ConvergenceError, match="singular to float64"):
        extended._refine(ones, lambda value: value, lambda R: R)  # each correction as large as what it corrects
