"""Training from descriptors to a calibrated classifier: agreement, folds, and data that leave little to train on."""

import numpy as np
import pytest
import torch
from sklearn.svm import LinearSVC

from bcnn.classify import CLASSIFIERS
from bcnn.classify.accuracy import evaluate_scores
from bcnn.classify.calibrate import assign_folds, fit_temperature
from bcnn.classify.fit import ABSENT, fit_classifier
from bcnn.classify.gram import as_matrix

from .builders import blobs


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_weights_are_those_of_the_solution(kind):
    X, labels = blobs()
    fitted = fit_classifier(as_matrix(X), torch.from_numpy(labels), 4, kind=kind, C=2.0)
    assert fitted.weight.shape == (4, 300)
    assert fitted.weight.dtype == fitted.bias.dtype == torch.float32
    assert fitted.converged
    assert (fitted.kind, fitted.C) == (kind, 2.0)
    assert set(fitted.time_s) == {"gram", "train", "calibrate", "weights"}
    K = torch.from_numpy(X @ X.T)
    solution = CLASSIFIERS[kind].solve(K, torch.from_numpy(labels), 4, C=2.0)
    np.testing.assert_allclose(fitted.scores(X), K @ solution.beta + solution.bias, atol=1e-5)
    assert (fitted.scores(X).argmax(1).numpy() == labels).mean() > 0.95


def test_svm_on_single_precision_as_liblinear():
    X, labels = (a := blobs(n=150, d=2000, k=5))[0].astype(np.float32), a[1]
    fitted = fit_classifier(as_matrix(X), labels, 5, calibrate=False)
    reference = LinearSVC(loss="hinge", tol=1e-10, max_iter=1_000_000).fit(X.astype(np.float64), labels)
    np.testing.assert_allclose(fitted.scores(X), reference.decision_function(X), atol=1e-4)
    assert not fitted.calibrated
    assert fitted.cv_accuracy is None


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_calibration_holds_on_new_samples(kind):
    X, labels = blobs(n=800, d=60, k=4, strength=0.25)
    fitted = fit_classifier(as_matrix(X[:400]), labels[:400], 4, kind=kind)
    scores = fitted.scores(X[400:])
    found = evaluate_scores(scores / fitted.temperature, labels[400:], 4)
    assert fitted.calibrated
    assert fitted.cv_accuracy == pytest.approx(found.accuracy, abs=0.08)
    assert found.calibration_error < 0.12
    best = fit_temperature(scores, torch.from_numpy(labels[400:]))
    likelihood = evaluate_scores(scores / best, labels[400:], 4).negative_log_likelihood
    assert found.negative_log_likelihood < likelihood + 0.02
    assert fitted.probabilities(scores).sum(1).allclose(torch.ones(400).double())


def test_held_out_scores_are_of_classifiers_that_did_not_see_them():
    X, labels = blobs(n=60)
    fitted = fit_classifier(as_matrix(X), labels, 4, folds=3, seed=5)
    fold = assign_folds(labels, np.arange(60), 3, 5)
    for i in range(3):
        seen = fold != i
        part = fit_classifier(as_matrix(X[seen]), labels[seen], 4, calibrate=False)
        np.testing.assert_allclose(fitted.cv_scores[~seen], part.scores(X[~seen]), atol=1e-3)


def test_groups_stay_together_and_count_once():
    X, labels = blobs(n=60, strength=0.1)
    views = np.concatenate([X, X + 1e-3])  # a flip that tells everything
    groups = np.tile(np.arange(60), 2)
    alone = fit_classifier(as_matrix(X), labels, 4)
    fitted = fit_classifier(as_matrix(views), np.tile(labels, 2), 4, groups=groups)
    leaky = fit_classifier(as_matrix(views), np.tile(labels, 2), 4)
    assert fitted.cv_scores.shape == (60, 4)
    assert fitted.cv_accuracy == pytest.approx(alone.cv_accuracy, abs=0.1)
    assert leaky.cv_accuracy > fitted.cv_accuracy + 0.2


def test_folds_are_even_whole_and_repeatable():
    labels = np.repeat([0, 1, 2, 3], [40, 22, 3, 1])
    labels, groups = np.repeat(labels, 2), np.repeat(np.arange(66), 2)
    fold = assign_folds(labels, groups, 5, seed=0)
    assert (fold[::2] == fold[1::2]).all()
    assert np.ptp(np.bincount(fold[(labels == 0)])) == 0
    assert np.ptp(np.bincount(fold[(labels == 1)])) <= 2
    assert len(set(fold[labels == 2])) == 3
    assert set(fold[labels == 3]) == {-1}
    np.testing.assert_array_equal(fold, assign_folds(labels, groups, 5, seed=0))
    assert (fold != assign_folds(labels, groups, 5, seed=1)).any()


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_classes_without_samples_never_win(kind):
    X, labels = blobs(n=60, k=3)
    fitted = fit_classifier(as_matrix(X), np.array([1, 2, 5])[labels], 7, kind=kind)
    assert fitted.absent == (0, 3, 4, 6)
    scores = fitted.scores(X)
    assert set(scores.argmax(1).tolist()) <= {1, 2, 5}
    assert (fitted.weight[list(fitted.absent)] == 0).all()
    assert (fitted.bias[list(fitted.absent)] == ABSENT).all()
    assert (fitted.probabilities(scores)[:, list(fitted.absent)] < 1e-6).all()
    assert fitted.cv_scores.shape == (60, 7)
    compact = fit_classifier(as_matrix(X), labels, 3, kind=kind)
    assert torch.equal(compact.weight, fitted.weight[[1, 2, 5]])
    assert compact.temperature == fitted.temperature


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_one_image_a_class_is_not_calibrated_and_says_so(kind):
    X, labels = blobs(n=12, k=12)
    fitted = fit_classifier(as_matrix(X), labels, 12, kind=kind)
    assert not fitted.calibrated
    assert fitted.temperature == CLASSIFIERS[kind].temperature
    assert fitted.cv_accuracy is None
    assert (fitted.scores(X).argmax(1).numpy() == labels).all()


def test_a_single_image_among_others():
    X, labels = blobs(n=41, k=4)
    labels[-1] = 4
    fitted = fit_classifier(as_matrix(X), labels, 5)
    assert fitted.calibrated
    assert fitted.cv_accuracy is not None
    assert fitted.cv_scores is None  # that image was never held out


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_the_same_to_the_last_digit(kind):
    X, labels = blobs()
    first, second = (fit_classifier(as_matrix(X), labels, 4, kind=kind) for _ in range(2))
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.cv_scores, second.cv_scores)
    assert first.temperature == second.temperature


def test_memory_map_and_progress(tmp_path):
    X, labels = blobs()
    np.save(tmp_path / "x.npy", X)
    heard = []
    fitted = fit_classifier(
        as_matrix(np.load(tmp_path / "x.npy", mmap_mode="r")), labels, 4, progress=lambda *event: heard.append(event)
    )
    assert torch.equal(fitted.weight, fit_classifier(as_matrix(X), labels, 4).weight)
    assert list(dict.fromkeys(stage for stage, _, _ in heard)) == ["gram", "train", "calibrate", "weights"]
    last = {stage: (done, total) for stage, done, total in heard}
    assert all(done == total for done, total in last.values())


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_sample_without_weight_does_not_count(kind):
    X, labels = blobs(n=80)
    labels[-1], counts = 4, np.arange(80) % 3 != 0  # the only sample of class 4 does not count
    counts[-1] = False
    weights = np.where(counts, np.random.default_rng(0).uniform(0.2, 3, 80), 0)
    fitted = fit_classifier(X, labels, 5, kind=kind, sample_weight=weights)
    without = fit_classifier(X[counts], labels[counts], 5, kind=kind, sample_weight=weights[counts])
    assert fitted.absent == without.absent == (4,)
    np.testing.assert_allclose(fitted.scores(X), without.scores(X), atol=1e-6)
    np.testing.assert_allclose(fitted.cv_scores, without.cv_scores, atol=1e-6)
    assert len(fitted.cv_scores) == counts.sum()
    assert fitted.temperature == pytest.approx(without.temperature, rel=1e-5)
    assert fitted.cv_accuracy == pytest.approx(without.cv_accuracy)
    weights[~counts] = 1e-300
    lightest = fit_classifier(X, labels, 5, kind=kind, sample_weight=weights)
    assert torch.equal(lightest.weight, fitted.weight)


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_a_whole_weight_is_a_repeated_row(kind):
    X, labels = blobs(n=60, strength=0.15)
    weights = np.random.default_rng(0).integers(0, 4, 60)
    rows = np.repeat(np.arange(60), weights)
    weighted = fit_classifier(X, labels, 4, kind=kind, sample_weight=weights)
    repeated = fit_classifier(X[rows], labels[rows], 4, kind=kind, calibrate=False)
    np.testing.assert_allclose(weighted.scores(X), repeated.scores(X), atol=1e-5)
    # Of the held-out scores, which repeated rows would have in other folds: one temperature, one accuracy.
    scores, seen = weighted.cv_scores, np.flatnonzero(weights)
    again = np.repeat(np.arange(len(seen)), weights[seen])
    assert fit_temperature(scores[again], torch.from_numpy(labels[rows])) == pytest.approx(
        weighted.temperature, rel=1e-4
    )
    assert weighted.cv_accuracy == pytest.approx((scores[again].argmax(1).numpy() == labels[rows]).mean())


def test_weights_follow_their_rows_into_the_folds():
    X, labels = blobs(n=60)
    weights = np.random.default_rng(0).uniform(0.1, 5, 60)
    fitted = fit_classifier(X, labels, 4, folds=3, seed=5, sample_weight=weights)
    fold = assign_folds(labels, np.arange(60), 3, 5)
    for i in range(3):
        seen = fold != i
        part = fit_classifier(X[seen], labels[seen], 4, calibrate=False, sample_weight=weights[seen])
        np.testing.assert_allclose(fitted.cv_scores[~seen], part.scores(X[~seen]), atol=1e-3)


def test_a_group_weighs_what_its_rows_do_on_average():
    X, labels = blobs(n=60, strength=0.1)
    views, groups = np.concatenate([X, X]), np.tile(np.arange(60), 2)
    weights = np.random.default_rng(0).uniform(0.1, 5, 60)
    alone = fit_classifier(X, labels, 4, C=2.0, sample_weight=weights)
    both = fit_classifier(views, np.tile(labels, 2), 4, groups=groups, sample_weight=np.tile(weights, 2))
    np.testing.assert_allclose(both.cv_scores, alone.cv_scores, atol=1e-2)
    assert both.temperature == pytest.approx(alone.temperature, rel=1e-2)
    assert both.cv_accuracy == pytest.approx(alone.cv_accuracy, abs=0.05)


@pytest.mark.parametrize("rescale", ["none", "median"])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_equal_weights_are_another_c(kind, rescale):
    X, labels = blobs()
    weighted = fit_classifier(X, labels, 4, kind=kind, rescale=rescale, sample_weight=np.full(120, 2.5))
    other = fit_classifier(X, labels, 4, kind=kind, rescale=rescale, C=2.5)
    np.testing.assert_allclose(weighted.scores(X), other.scores(X), atol=1e-5)
    assert weighted.temperature == pytest.approx(other.temperature, rel=1e-3)
    assert weighted.cv_accuracy == pytest.approx(other.cv_accuracy)


def test_temperature():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5000, 4, generator=generator).double()
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    assert fit_temperature(0.1 * logits, labels) == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "smv"}, "unknown classifier 'smv'; did you mean 'svm'"),
        ({"labels": np.zeros(120)}, "expected one whole number per row"),
        ({"labels": np.zeros(119, int)}, "120 rows"),
        ({"labels": np.zeros(120, int)}, "samples of at least 2 classes, got 1"),
        ({"num_classes": 3}, "labels from 0 to 2, got 0 to 3"),
        ({"C": -1.0}, "expected C > 0"),
        ({"folds": 1}, "expected folds >= 2"),
        ({"groups": np.zeros(120, int)}, "one label per group"),
        ({"groups": np.zeros(3, int)}, "120 rows"),
        ({"matrix": np.full((120, 2), np.nan)}, "row 0, column 0"),
        ({"sample_weight": np.ones(3)}, r"a sample weight per row, 120 rows, got shape \(3,\)"),
        ({"sample_weight": 2.0}, r"a sample weight per row, 120 rows, got shape \(\)"),
        ({"sample_weight": np.arange(120) - 5.0}, r">= 0 and finite, got -5\.0 in row 0"),
        ({"sample_weight": np.where(np.arange(120) == 7, np.nan, 1)}, "got nan in row 7"),
        ({"sample_weight": np.where(np.arange(120) == 7, np.inf, 1)}, "got inf in row 7"),
        ({"sample_weight": np.zeros(120)}, "at least 2 classes, got 0; .*weight is zero do not"),
        ({"sample_weight": np.arange(120) % 4 == 1}, "at least 2 classes, got 1; .*weight is zero do not"),
        ({"sample_weight": np.full(120, 1e308), "C": 1e3}, "finite, times C too"),
    ],
)
def test_errors(change, message):
    X, labels = blobs()
    given = {"matrix": X, "labels": labels, "num_classes": 4, **change}
    with pytest.raises(ValueError, match=message):
        fit_classifier(given.pop("matrix"), given.pop("labels"), given.pop("num_classes"), **given)
