"""The paper's SVD gradients: as printed, with their exceptions counted."""

import warnings

import pytest
import torch

import bcnn

from ...helpers import gradient, random_like, relative_error, spd, with_spectrum


def test_is_equations_2_to_4_with_its_symmetric_part_taken():
    A = with_spectrum([4.0, 2.5, 1.0])
    G = random_like(A)
    sigma, U = torch.linalg.eigh(A)
    K = torch.zeros(3, 3, dtype=A.dtype)
    for i in range(3):
        for j in range(3):
            if i != j:
                K[i, j] = 1 / (sigma[i] - sigma[j])
    S = (G + G.mT) / 2
    grad_U = (S + S.mT) @ U @ torch.diag(sigma.sqrt())
    grad_sigma = torch.diag(0.5 / sigma.sqrt()) @ U.mT @ S @ U
    printed = U @ (K.mT * (U.mT @ grad_U) + torch.diag(grad_sigma.diagonal())) @ U.mT
    X = gradient(lambda A: bcnn.sqrtm(A, backward="svd"), A, G)
    assert relative_error(X, (printed + printed.mT) / 2) < 1e-13


def test_exceptions_are_returned_and_counted():
    A = torch.stack([with_spectrum([4.0, 2.0]), 2 * torch.eye(2, dtype=torch.float64)])
    with pytest.warns(bcnn.GradientExceptionWarning, match="NaN in 1 of 2 matrices.*lyapunov"):
        X = gradient(lambda A: bcnn.sqrtm(A, backward="svd"), A, random_like(A))
    assert X[0].isfinite().all()
    assert not X[1].isfinite().any()


def test_truncated_ignores_them_and_counts():
    A = torch.stack([with_spectrum([4.0, 2.0]), 2 * torch.eye(2, dtype=torch.float64)])
    G = random_like(A)
    counts = []
    X = gradient(lambda A: bcnn.sqrtm(A, backward="svd_truncated", report=lambda *n: counts.append(n)), A, G)
    assert counts == [(1, 2)]
    assert relative_error(X[:1], gradient(bcnn.sqrtm, A, G)[:1]) < 1e-12
    assert torch.equal(X[1], torch.zeros_like(X[1]))


def test_nothing_to_report_is_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        X = gradient(lambda A: bcnn.sqrtm(A, backward="svd_truncated"), spd(2), random_like(spd(2)))
    assert X.isfinite().all()


def test_tau_cuts_the_directions_below_it():
    A = torch.diag(torch.tensor([4.0, 2.0, 0.5, 0.25], dtype=torch.float64))
    G = random_like(A)
    X = gradient(lambda A: bcnn.sqrtm(A, backward="svd_truncated", tau=1.0), A, G)
    exact = gradient(bcnn.sqrtm, A, G)
    assert torch.allclose(X[:2, :2], exact[:2, :2])
    assert torch.equal(X[2:], torch.zeros(2, 4, dtype=A.dtype))


def test_a_ridge_under_few_features_is_cut_by_default():
    torch.manual_seed(0)
    X = torch.rand(12, 6, dtype=torch.float64)  # twelve channels, three of them dead, at six locations
    X[:3] = 0
    X.requires_grad_()
    G = random_like(torch.zeros(12, 12, dtype=torch.float64))

    def grad(**options):
        A = X @ X.mT / 6 + 1e-3 * torch.eye(12, dtype=torch.float64)
        return torch.autograd.grad((bcnn.sqrtm(A, **options) * G).sum(), X)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = grad(forward="svd", backward="svd_truncated")
    exact = grad()
    within = X.detach() @ torch.linalg.pinv(X.detach())  # onto what the features span
    assert relative_error(within @ found, within @ exact) < 1e-8
    assert 0 < relative_error(found, exact) < 1


def test_svd_gradients_are_less_precise_than_lyapunov_on_close_eigenvalues():
    """The claim of Sec. 3.5, in float64 so that only the formula differs."""
    A = with_spectrum([1.0, 1.0 + 1e-8, 2.0, 2.0 + 1e-8])
    G = random_like(A)
    exact = gradient(lambda A: bcnn.sqrtm(A, solver="kronecker"), A, G)
    svd = relative_error(gradient(lambda A: bcnn.sqrtm(A, backward="svd"), A, G), exact)
    lyapunov = relative_error(gradient(bcnn.sqrtm, A, G), exact)
    assert lyapunov < 1e-13
    assert svd > 1e3 * lyapunov
