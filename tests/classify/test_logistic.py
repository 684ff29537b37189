"""Multinomial logistic regression, against scikit-learn's and the conditions of optimality."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from bcnn.classify.logistic import solve_logistic
from bcnn.errors import NotConvergedWarning

from .builders import blobs, overlapping


def solved(X: np.ndarray, labels: np.ndarray, k: int, **options):
    K = torch.from_numpy(X @ X.T)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotConvergedWarning)
        solution = solve_logistic(K, torch.from_numpy(labels), k, **options)
    assert solution.converged
    return (K @ solution.beta + solution.bias).numpy(), solution


@pytest.mark.parametrize("C", [1e-2, 1.0, 1e2])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_decision_values_as_scikit_learn(make, C):
    X, labels = make()
    ours, _ = solved(X, labels, int(labels.max()) + 1, C=C)
    reference = LogisticRegression(C=C, tol=1e-10, max_iter=100_000).fit(X, labels).decision_function(X)
    np.testing.assert_allclose(
        ours - ours.mean(1, keepdims=True), reference - reference.mean(1, keepdims=True), atol=1e-4
    )


@pytest.mark.parametrize("C", [1e-2, 10.0])
def test_two_classes_as_scikit_learn(C):
    X, labels = blobs(k=2)
    ours, _ = solved(X, labels, 2, C=C)
    model = LogisticRegression(C=C, tol=1e-10, max_iter=100_000).fit(X, labels)
    np.testing.assert_allclose(ours[:, 1] - ours[:, 0], model.decision_function(X), atol=1e-5)
    np.testing.assert_allclose(torch.from_numpy(ours).softmax(1), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_optimal_in_any_unit_and_for_any_c(make, norm, C):
    X, labels = make(n=80, norm=norm)
    k = int(labels.max()) + 1
    ours, solution = solved(X, labels, k, C=C)
    residual = C * (np.eye(k)[labels] - torch.from_numpy(ours).softmax(1).numpy())  # beta, on the range of X
    weight = X.T @ solution.beta.numpy()
    rounding = 1e-10 * C * abs(X).sum()  # of the sum in X.T @ residual
    np.testing.assert_allclose(weight, X.T @ residual, atol=1e-6 * max(1, abs(weight).max()) + rounding)
    assert abs(residual.sum(0)).max() <= 1e-6 * C * len(X)


def test_repeated_rows():
    X, labels = blobs(n=60)
    once, _ = solved(X, labels, 4, C=2.0)
    twice, _ = solved(np.tile(X, (2, 1)), np.tile(labels, 2), 4, C=1.0)
    np.testing.assert_allclose(twice[:60], once, atol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_weighted_as_scikit_learn(make, k):
    X, labels = make(n=90, k=k)
    weights = np.random.default_rng(1).uniform(0.05, 4, 90)
    ours, _ = solved(X, labels, k, C=3.0, sample_weight=torch.from_numpy(weights))
    model = LogisticRegression(C=3.0, tol=1e-10, max_iter=100_000).fit(X, labels, sample_weight=weights)
    np.testing.assert_allclose(torch.from_numpy(ours).softmax(1), model.predict_proba(X), atol=1e-5)


@pytest.mark.parametrize("make", [blobs, overlapping])
def test_a_whole_weight_is_a_repeated_row(make):
    X, labels = make(n=60, k=3)
    weights = np.random.default_rng(0).integers(1, 5, 60)
    weighted, _ = solved(X, labels, 3, sample_weight=torch.from_numpy(weights).double())
    rows = np.repeat(np.arange(60), weights)
    repeated, _ = solved(X[rows], labels[rows], 3)
    np.testing.assert_allclose(repeated, weighted[rows], atol=1e-6)


@pytest.mark.parametrize("weight", [1e-8, 1 / 3, 1.0, 1e4])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_equal_weights_are_another_c(make, weight):
    X, labels = make(n=60, k=3)
    weights = torch.full((60,), weight, dtype=torch.float64)
    weighted, _ = solved(X, labels, 3, C=2.0, sample_weight=weights)
    np.testing.assert_allclose(weighted, solved(X, labels, 3, C=2.0 * weight)[0], atol=1e-6)


@pytest.mark.parametrize("make", [blobs, overlapping])
def test_optimal_for_weights_of_any_size(make):
    X, labels = make(n=90, k=3)
    weights = 10 ** np.random.default_rng(0).uniform(-6, 6, 90)
    ours, solution = solved(X, labels, 3, sample_weight=torch.from_numpy(weights))
    residual = weights[:, None] * (np.eye(3)[labels] - torch.from_numpy(ours).softmax(1).numpy())
    np.testing.assert_allclose(X.T @ solution.beta.numpy(), X.T @ residual, atol=1e-6)
    np.testing.assert_allclose(residual.sum(0), 0, atol=1e-6)


def test_features_that_tell_nothing():
    ours, _ = solved(np.zeros((4, 2)), np.array([0, 0, 0, 1]), 2)
    np.testing.assert_allclose(torch.from_numpy(ours).softmax(1)[0], [0.75, 0.25], atol=1e-6)


def test_the_same_to_the_last_digit():
    X, labels = blobs()
    assert torch.equal(solved(X, labels, 4)[1].beta, solved(X, labels, 4)[1].beta)


def test_no_silence_when_it_stops_early():
    X, labels = blobs()
    with pytest.warns(NotConvergedWarning, match="not converged after 1 Newton steps"):
        solution = solve_logistic(torch.from_numpy(X @ X.T), torch.from_numpy(labels), 4, max_iters=1)
    assert not solution.converged
    assert solution.gap > 0


def test_errors():
    with pytest.raises(ValueError, match="solve_logistic: expected C > 0"):
        solve_logistic(torch.eye(2).double(), torch.tensor([0, 1]), 2, C=-1.0)
    with pytest.raises(ValueError, match="solve_logistic: expected sample weights > 0"):
        solve_logistic(torch.eye(2).double(), torch.tensor([0, 1]), 2, sample_weight=torch.zeros(2).double())
