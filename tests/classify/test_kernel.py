"""Gram matrices that are not formed do all that formed ones do, and nothing of size n x n is made of many rows."""

import numpy as np
import pytest
import torch

from bcnn.classify import gram as module
from bcnn.classify.fit import fit_classifier
from bcnn.classify.gram import as_matrix, kernel_of
from bcnn.classify.kernel import Formed, Thin

from .builders import blobs

N, D = 40, 7


@pytest.fixture(params=[None, "ridge"], ids=["no ridge", "ridge"])
def pair(request):
    """The same kernel, formed and not, and its n x n numbers by NumPy."""
    rng = np.random.default_rng(0)
    X, ridge = rng.normal(size=(N, D)), None if request.param is None else rng.uniform(0.5, 2, size=N)
    K = X @ X.T + (0 if ridge is None else np.diag(ridge))
    thin = Thin(torch.from_numpy(X), None if ridge is None else torch.from_numpy(ridge))
    return Formed(torch.from_numpy(K)), thin, K


def test_products(pair):
    B = np.random.default_rng(1).normal(size=(N, 3))
    for kernel in pair[:2]:
        np.testing.assert_allclose(kernel @ torch.from_numpy(B), pair[2] @ B, atol=1e-12)
        np.testing.assert_allclose(kernel @ torch.from_numpy(B[:, 0]), pair[2] @ B[:, 0], atol=1e-12)
        np.testing.assert_allclose(kernel.diagonal(), np.diag(pair[2]), atol=1e-12)
        np.testing.assert_allclose(kernel.row_sums(), pair[2].sum(1), atol=1e-12)
        np.testing.assert_allclose(kernel.single() @ torch.from_numpy(B).float(), pair[2] @ B, atol=1e-4)


def test_some_of_the_rows(pair):
    rows, others = np.arange(0, N, 3), np.arange(1, N, 3)
    B = np.random.default_rng(1).normal(size=(len(others), 3))
    for kernel in pair[:2]:
        own = kernel.among(torch.from_numpy(rows))
        np.testing.assert_allclose(own @ torch.eye(len(rows)).double(), pair[2][np.ix_(rows, rows)], atol=1e-12)
        across = kernel.across(torch.from_numpy(rows), torch.from_numpy(others), torch.from_numpy(B))
        np.testing.assert_allclose(across, pair[2][np.ix_(rows, others)] @ B, atol=1e-12)


@pytest.mark.parametrize("ridge", [None, torch.tensor([0.3]), torch.linspace(0.1, 1, N)], ids=str)
def test_bias(pair, ridge):
    formed, thin, K = pair
    if thin.ridge is not None:
        thin = Thin(thin.X)
        K = (thin.X @ thin.X.mT).numpy()
        formed = Formed(thin.X @ thin.X.mT)
    own = ridge if ridge is None else ridge.double()
    expected = (K + 1) / 2.5 + (0 if own is None else np.diag(np.broadcast_to(own.numpy(), N)))
    for kernel in (formed, thin):
        found = kernel.with_bias(2.5, own)
        np.testing.assert_allclose(found @ torch.eye(N).double(), expected, atol=1e-12)


@pytest.mark.parametrize("num_rows", [4, 30])
def test_systems(pair, num_rows):
    """More rows than columns have a solution where the right side is within reach, or with a ridge."""
    rows, x = np.arange(num_rows), np.random.default_rng(1).normal(size=num_rows)
    block = pair[2][np.ix_(rows, rows)]
    for kernel in pair[:2]:
        times, solve = kernel.system(torch.from_numpy(rows))
        np.testing.assert_allclose(times(torch.from_numpy(x)), block @ x, atol=1e-12)
        np.testing.assert_allclose(block @ solve(torch.from_numpy(block @ x)).numpy(), block @ x, atol=1e-6)


def test_a_system_of_very_many_rows_is_solved_in_the_columns():
    """A matrix of all rows would take 320 GB; the solution is that of the pseudoinverse."""
    rng = np.random.default_rng(0)
    X, right = rng.normal(size=(200_000, 2)), rng.normal(size=200_000)
    _, solve = Thin(torch.from_numpy(X)).system(torch.arange(len(X)))
    inverse = np.linalg.pinv(X)
    np.testing.assert_allclose(solve(torch.from_numpy(right)), inverse.T @ (inverse @ right), rtol=1e-6, atol=1e-12)


def test_shifted_systems(pair):
    rng = np.random.default_rng(1)
    B, E = rng.normal(size=(N, 3)), rng.uniform(0.1, 3, size=N)
    for kernel in pair[:2]:
        found = kernel.shifted_inverse(0.7)(torch.from_numpy(B))
        np.testing.assert_allclose(found, np.linalg.solve(pair[2] + 0.7 * np.eye(N), B), atol=1e-10)
        for L in {id(L): L for L in (None, kernel.low_rank() if kernel is pair[0] else None)}.values():
            solved = kernel.shifted_solve(torch.from_numpy(E), L)(torch.from_numpy(B[:, 0]))
            np.testing.assert_allclose(solved, np.linalg.solve(pair[2] + np.diag(E), B[:, 0]), atol=1e-9)


def test_spectral_factors():
    X = torch.from_numpy(np.random.default_rng(0).normal(size=(N, D)))
    for kernel in (Thin(X), Formed(X @ X.mT)):
        L = kernel.spectral_factor()
        assert L.shape == (N, D)
        torch.testing.assert_close(L @ L.mT, X @ X.mT)
        inner = L.mT @ L
        torch.testing.assert_close(inner, torch.diag(inner.diagonal()), atol=1e-11, rtol=0)


@pytest.mark.parametrize(("n", "thin"), [(20, False), (21, False), (23, True), (200, True)])
def test_many_rows_are_not_multiplied_with_each_other(n, thin):
    X, _ = blobs(n=n, d=10)
    kernel = kernel_of(as_matrix(X), torch.arange(n))
    assert kernel.thin == thin
    np.testing.assert_allclose(kernel @ torch.eye(n).double(), X @ X.T, atol=1e-12)


@pytest.mark.parametrize("kind", ["svm", "svm_squared", "logistic"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_classifier_does_not_depend_on_how_the_kernel_is_kept(kind, weighted, monkeypatch):
    X, labels = blobs(n=120, d=20, strength=0.6)
    options = {"kind": kind, "groups": np.arange(120)}
    options |= {"sample_weight": np.linspace(0, 2, 120)} if weighted else {}
    ours = fit_classifier(X, labels, 4, rescale="median", **options)
    monkeypatch.setattr(module, "THIN", 1000)
    formed = fit_classifier(X, labels, 4, rescale="median", **options)
    assert ours.converged
    assert formed.converged
    np.testing.assert_allclose(ours.scores(X), formed.scores(X), atol=1e-4)
    assert ours.temperature == pytest.approx(formed.temperature, rel=0.02)  # folds are solved to 1e-3


def test_classes_some_at_a_time(monkeypatch):
    from bcnn.classify import svm

    X, labels = blobs(n=150, d=20, k=7, strength=0.6)
    whole = fit_classifier(X, labels, 7, calibrate=False)
    monkeypatch.setattr(svm, "NUM_AT_ONCE", 300)  # two classes
    heard = []
    parts = fit_classifier(X, labels, 7, calibrate=False, progress=lambda *event: heard.append(event))
    np.testing.assert_allclose(parts.scores(X), whole.scores(X), atol=1e-4)
    assert [event[1:] for event in heard if event[0] == "train"] == [(i, 7) for i in range(1, 8)]


@pytest.mark.parametrize(
    ("n", "message"), [(30, "the 30 x 30 products .* --no-flips"), (300, "300 rows of 20 numbers")]
)
def test_too_little_memory_is_said_before_the_work(n, message, monkeypatch):
    X, labels = blobs(n=n, d=20)
    monkeypatch.setattr(module, "available_memory", lambda: 1000)
    with pytest.raises(MemoryError, match=f"classifier: expected .* GB of free memory for {message}"):
        fit_classifier(X, labels, 4)
    monkeypatch.setattr(module, "available_memory", lambda: None)
    fit_classifier(X, labels, 4, calibrate=False)


def test_many_classes_count_as_memory_too(monkeypatch):
    X, labels = blobs(n=60, d=200, k=30)
    enough = module.bytes_kept(60, 200)
    monkeypatch.setattr(module, "available_memory", lambda: enough)
    with pytest.raises(MemoryError, match=r"expected .* GB of free memory .* and scores of 30 classes"):
        fit_classifier(X, labels, 30)
    monkeypatch.setattr(module, "available_memory", lambda: enough + 8 * 60 * 30 * module.COPIES_SCORES)
    fit_classifier(X, labels, 30, calibrate=False)
