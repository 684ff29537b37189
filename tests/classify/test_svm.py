"""SVMs: against liblinear, libsvm and the conditions of optimality, where problems are easy and where they are not."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.svm import SVC, LinearSVC

from bcnn.classify.kernel import Thin
from bcnn.classify.svm import solve_svm
from bcnn.errors import NotConvergedWarning

from .builders import blobs, overlapping


def decisions(X: np.ndarray, labels: np.ndarray, k: int, *, thin=False, **options) -> tuple[np.ndarray, object]:
    K = Thin(torch.from_numpy(X)) if thin else torch.from_numpy(X @ X.T)
    with warnings.catch_warnings():
        warnings.simplefilter("error", NotConvergedWarning)
        solution = solve_svm(K, torch.from_numpy(labels), k, **options)
    assert solution.converged
    return (K @ solution.beta + solution.bias).numpy(), solution


def liblinear(X: np.ndarray, labels: np.ndarray, C: float, squared: bool, weights=None) -> np.ndarray:
    loss = "squared_hinge" if squared else "hinge"
    model = LinearSVC(loss=loss, C=C, dual=True, tol=1e-10, max_iter=1_000_000, random_state=0)
    return model.fit(X, labels, sample_weight=weights).decision_function(X)


def check_optimal(X: np.ndarray, labels: np.ndarray, solution, C, squared: bool, tol: float = 1e-5) -> None:
    """Multipliers within bounds; margin above 1 only where they are 0, below 1 only where they are C, (n, 1) or one."""
    K = X @ X.T + 1
    Y = np.where(labels[:, None] == np.arange(solution.beta.shape[1]), 1.0, -1.0)
    a = Y * solution.beta.numpy()
    ridge = solution.beta.numpy() / (2 * C) if squared else 0
    excess = Y * (K @ solution.beta.numpy() + ridge) - 1
    assert a.min() >= 0
    assert (excess[a == 0] > -tol).all()
    if squared:
        assert (abs(excess[a > 0]) < tol).all()
    else:
        assert (a <= C * (1 + 1e-12)).all()
        assert (excess[a >= C * (1 - 1e-12)] < tol).all()
        assert (abs(excess[(a > 0) & (a < C * (1 - 1e-12))]) < tol).all()


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("C", [1e-2, 1.0, 1e2])
def test_wide_features_as_liblinear(C, squared):
    X, labels = blobs()
    ours, solution = decisions(X, labels, 4, C=C, squared=squared)
    np.testing.assert_allclose(ours, liblinear(X, labels, C, squared), atol=1e-6)
    check_optimal(X, labels, solution, C, squared)


def test_where_the_first_guess_is_a_bad_one_classes_come_nearer_together(monkeypatch):
    from bcnn.classify import svm

    def alone(*_):
        raise AssertionError("a class was left to be finished by itself")

    monkeypatch.setattr(svm._Run, "_polish", alone)
    monkeypatch.setattr(svm, "NEAR_CHANGE", 0.5)
    X, labels = blobs(n=3000, d=30, strength=0.6)
    monkeypatch.setattr(svm, "NEARER", (0.5,))
    with pytest.raises(AssertionError, match="by itself"):
        decisions(X, labels, 4, thin=True)
    monkeypatch.setattr(svm, "NEARER", (0.5, 1e-3, 1e-6))
    ours, solution = decisions(X, labels, 4, thin=True)
    check_optimal(X, labels, solution, 1.0, False)
    np.testing.assert_allclose(ours, liblinear(X, labels, 1.0, False), atol=1e-4)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("C", [1e-3, 1.0])
@pytest.mark.parametrize("thin", [False, True])
def test_overlapping_classes_as_liblinear(thin, C, squared):
    X, labels = overlapping()
    ours, solution = decisions(X, labels, 3, thin=thin, C=C, squared=squared)
    np.testing.assert_allclose(ours, liblinear(X, labels, C, squared), atol=1e-5)
    check_optimal(X, labels, solution, C, squared)


@pytest.mark.parametrize("norm", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("C", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize(("make", "thin"), [(blobs, False), (overlapping, False), (overlapping, True)])
def test_optimal_in_any_unit_and_for_any_c(make, thin, norm, C, squared):
    X, labels = make(n=90, norm=norm)
    if make is overlapping and norm * C > 1e6:
        pytest.skip("multipliers of 1e4 on descriptors of 1e6: no decision value is left in float64, see the next test")
    _, solution = decisions(X, labels, int(labels.max()) + 1, thin=thin, C=C, squared=squared)
    check_optimal(X, labels, solution, C, squared, tol=1e-4)


def test_beyond_float64_it_says_so_or_is_right():
    X, labels = overlapping(n=90, norm=1e3)
    K = torch.from_numpy(X @ X.T)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solution = solve_svm(K, torch.from_numpy(labels), 3, C=1e4)
    assert solution.converged != any(w.category is NotConvergedWarning for w in caught)
    predicted = (K @ solution.beta + solution.bias).argmax(1).numpy()
    assert (predicted == labels).mean() > 0.6


def test_decision_values_as_libsvm():
    X, labels = blobs(k=2)
    ours, _ = decisions(X, labels, 2, C=0.5)
    reference = SVC(kernel="precomputed", C=0.5, tol=1e-10).fit(X @ X.T + 1, labels).decision_function(X @ X.T + 1)
    # libsvm's own, free bias is zero to its tolerance only where the multipliers balance: compare by liblinear's too.
    np.testing.assert_allclose(ours[:, 1], liblinear(X, labels, 0.5, False), atol=1e-6)
    np.testing.assert_array_equal(ours[:, 0], -ours[:, 1])
    assert np.corrcoef(ours[:, 1], reference)[0, 1] > 0.999


@pytest.mark.parametrize("squared", [False, True])
def test_repeated_rows_make_no_difference_to_weights(squared):
    X, labels = blobs(n=60)
    once, _ = decisions(X, labels, 4, C=2.0, squared=squared)
    twice, solution = decisions(np.tile(X, (2, 1)), np.tile(labels, 2), 4, C=1.0, squared=squared)
    np.testing.assert_allclose(twice[:60], once, atol=1e-5)
    np.testing.assert_allclose(twice[60:], once, atol=1e-5)
    assert solution.beta.isfinite().all()


def test_equal_rows_of_different_classes():
    X, labels = blobs(n=60)
    X[1] = X[0]
    ours, solution = decisions(X, labels, 4, C=100.0)
    np.testing.assert_allclose(ours[0], ours[1])
    check_optimal(X, labels, solution, 100.0, False)


@pytest.mark.parametrize("X", [np.zeros((6, 3)), np.ones((6, 3))])
def test_features_that_tell_nothing(X):
    ours, _ = decisions(X, np.array([0, 0, 0, 0, 1, 2]), 3)
    assert np.isfinite(ours).all()
    assert (ours.argmax(1) == 0).all()


def test_separable_hard_margin():
    X = np.array([[0.0], [2.0]])
    ours, _ = decisions(X, np.array([0, 1]), 2, C=1e4)  # min w^2 + b^2 with b = -1, w = 1
    np.testing.assert_allclose(ours[:, 1], [-1, 1], atol=1e-8)


def test_one_image_a_class():
    X, labels = blobs(n=12, k=12)
    ours, _ = decisions(X, labels, 12, C=1.0)
    np.testing.assert_allclose(ours, liblinear(X, labels, 1.0, False), atol=1e-6)


def test_very_unequal_classes():
    X, _ = blobs(n=150, k=2)
    labels = np.where(np.arange(150) < 147, 0, 1)
    ours, solution = decisions(X, labels, 2, C=10.0)
    np.testing.assert_allclose(ours[:, 1], liblinear(X, labels, 10.0, False), atol=1e-6)
    check_optimal(X, labels, solution, 10.0, False)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_weighted_as_liblinear(make, k, squared):
    X, labels = make(n=90, k=k)
    weights = np.random.default_rng(1).uniform(0.05, 4, 90)
    ours, solution = decisions(X, labels, k, C=0.7, squared=squared, sample_weight=torch.from_numpy(weights))
    reference = liblinear(X, labels, 0.7, squared, weights)
    np.testing.assert_allclose(ours[:, 1] if k == 2 else ours, reference, atol=1e-5)
    check_optimal(X, labels, solution, 0.7 * weights[:, None], squared)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_a_whole_weight_is_a_repeated_row(make, squared):
    X, labels = make(n=60, k=3)
    weights = np.random.default_rng(0).integers(1, 5, 60)
    weighted, _ = decisions(X, labels, 3, squared=squared, sample_weight=torch.from_numpy(weights).double())
    rows = np.repeat(np.arange(60), weights)
    repeated, _ = decisions(X[rows], labels[rows], 3, squared=squared)
    np.testing.assert_allclose(repeated, weighted[rows], atol=1e-5)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("weight", [1e-8, 1 / 3, 1.0, 1e4])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_equal_weights_are_another_c(make, weight, squared):
    X, labels = make(n=60, k=3)
    weights = torch.full((60,), weight, dtype=torch.float64)
    weighted, _ = decisions(X, labels, 3, C=2.0, squared=squared, sample_weight=weights)
    other, _ = decisions(X, labels, 3, C=2.0 * weight, squared=squared)
    np.testing.assert_allclose(weighted, other, atol=1e-6, rtol=1e-6)
    assert (weighted.argmax(1) == other.argmax(1)).all()


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_optimal_for_weights_of_any_size(make, squared):
    X, labels = make(n=90, k=3)
    weights = 10 ** np.random.default_rng(0).uniform(-6, 6, 90)
    _, solution = decisions(X, labels, 3, squared=squared, sample_weight=torch.from_numpy(weights))
    check_optimal(X, labels, solution, weights[:, None], squared, tol=1e-4)


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_next_to_no_weight_is_no_weight(make, squared):
    X, labels = make(n=90, k=3)
    heavy = np.arange(90) % 2 == 0
    weights = torch.from_numpy(np.where(heavy, 1.0, 1e-20))
    weighted, _ = decisions(X, labels, 3, squared=squared, sample_weight=weights)
    without, _ = decisions(X[heavy], labels[heavy], 3, squared=squared)
    np.testing.assert_allclose(weighted[heavy], without, atol=1e-6)


@pytest.mark.parametrize("squared", [False, True])
def test_a_sample_that_outweighs_all_others_is_classified_right(squared):
    X, labels = overlapping(n=90)
    wrong = int((decisions(X, labels, 3, squared=squared)[0].argmax(1) != labels).argmax())
    weights = torch.ones(90, dtype=torch.float64)
    weights[wrong] = 1e12
    ours, _ = decisions(X, labels, 3, squared=squared, sample_weight=weights)
    assert (ours[wrong] * np.where(np.arange(3) == labels[wrong], 1, -1) > 1 - 1e-6).all()


@pytest.mark.parametrize("make", [blobs, overlapping])
def test_the_same_to_the_last_digit(make):
    X, labels = make()
    first, second = (decisions(X, labels, int(labels.max()) + 1)[1] for _ in range(2))
    assert torch.equal(first.beta, second.beta)


@pytest.mark.usefixtures("two_threads")
def test_classes_side_by_side():
    X, labels = blobs(k=7)
    ours, _ = decisions(X, labels, 7)
    assert torch.get_num_threads() == 2
    np.testing.assert_allclose(ours, liblinear(X, labels, 1.0, False), atol=1e-6)
    with torch.inference_mode():
        again, _ = decisions(X, labels, 7)
    np.testing.assert_allclose(ours, again, atol=1e-12)


def test_warm_start_leads_to_the_same_solution():
    X, labels = blobs(n=100)
    cold, solution = decisions(X, labels, 4)
    warm, again = decisions(X, labels, 4, warm=solution.beta)
    np.testing.assert_allclose(warm, cold, atol=1e-7)
    assert again.num_iters <= solution.num_iters


@pytest.mark.parametrize("squared", [False, True])
@pytest.mark.parametrize("thin", [False, True])
@pytest.mark.parametrize("make", [blobs, overlapping])
def test_a_loose_tolerance_comes_near_from_a_problem_of_more_samples(make, thin, squared):
    X, labels = make(n=150)
    k, seen = int(labels.max()) + 1, np.arange(150) % 5 > 0
    whole, solution = decisions(X, labels, k, squared=squared)
    exact, _ = decisions(X[seen], labels[seen], k, squared=squared)
    start = {"warm": solution.beta[seen], "warm_scores": torch.from_numpy(whole[seen])}
    near, found = decisions(X[seen], labels[seen], k, thin=thin, squared=squared, tol=1e-2, **start)
    np.testing.assert_allclose(near, exact, atol=5e-2)
    assert np.sqrt(np.mean((near - exact) ** 2)) < 1e-2
    assert found.converged


def test_gap_bounds_the_error_of_a_loose_solution():
    X, labels = blobs()
    exact, _ = decisions(X, labels, 4)
    loose, solution = decisions(X, labels, 4, tol=9e-3)
    longest = np.sqrt((X**2).sum(1).max() + 1)
    assert abs(loose - exact).max() <= longest * np.sqrt(2 * solution.gap) + 1e-6
    assert abs(loose - exact).max() < 1e-1


@pytest.mark.parametrize("make", [blobs, overlapping])
def test_no_silence_when_it_stops_early(make):
    X, labels = make()
    K = torch.from_numpy(X @ X.T)
    with pytest.warns(NotConvergedWarning, match=r"\d of \d classes did not reach the tolerance .*duality gap \d"):
        solution = solve_svm(K, torch.from_numpy(labels), int(labels.max()) + 1, max_iters=1)
    assert not solution.converged
    assert solution.gap > 0


def test_progress():
    X, labels = blobs()
    heard = []
    decisions(X, labels, 4, progress=lambda stage, done, total: heard.append((done, total)))
    assert heard == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 0.0}, "expected C > 0"),
        ({"C": float("inf")}, "expected C > 0 and finite"),
        ({"num_classes": 1}, "at least 2 classes"),
        ({"num_classes": 3}, "labels from 0 to 2, got 0 to 3"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, "n labels"),
        ({"sample_weight": torch.ones(3).double()}, r"expected 20 sample weights, .*got shape \(3,\)"),
        ({"sample_weight": torch.ones(20)}, r"torch\.float64, got shape \(20,\), torch\.float32"),
        ({"sample_weight": torch.arange(20).double()}, "sample weights > 0 .*got 0.0 to 19.0; leave out samples"),
        ({"sample_weight": torch.full((20,), torch.nan).double()}, "sample weights > 0 and finite"),
        ({"sample_weight": torch.full((20,), 1e300, dtype=torch.float64), "C": 1e10}, "finite, times C too"),
    ],
)
def test_errors(change, message):
    X, labels = blobs(n=20)
    given = {"K": torch.from_numpy(X @ X.T), "labels": torch.from_numpy(labels), "num_classes": 4, **change}
    with pytest.raises(ValueError, match=message):
        solve_svm(**given)
