"""Accuracies against scikit-learn, intervals and tests against known values."""

import numpy as np
import pytest
import torch
from sklearn.metrics import balanced_accuracy_score, confusion_matrix, log_loss, top_k_accuracy_score

from bcnn.classify.accuracy import (
    accuracy_of,
    evaluate_scores,
    expected_calibration_error,
    mcnemar,
    negative_log_likelihood,
    wilson,
)


def test_scores_as_scikit_learn():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(200, 9)), np.concatenate([np.arange(9), rng.integers(0, 9, 191)])
    scores[np.arange(200), labels] += 1
    found = evaluate_scores(scores, labels, 9)
    guesses = scores.argmax(1)
    assert found.accuracy == (guesses == labels).mean()
    assert found.top5_accuracy == pytest.approx(top_k_accuracy_score(labels, scores, k=5))
    assert found.mean_class_accuracy == pytest.approx(balanced_accuracy_score(labels, guesses))
    np.testing.assert_array_equal(found.confusion, confusion_matrix(labels, guesses))
    assert found.counts == tuple(np.bincount(labels))
    assert found.num_images == 200
    probabilities = torch.from_numpy(scores).softmax(1)
    assert found.negative_log_likelihood == pytest.approx(log_loss(labels, probabilities))
    assert found.calibration_error == expected_calibration_error(probabilities, labels)


def test_predictions_and_classes_without_samples():
    found = accuracy_of(torch.tensor([0, 2, 2]), torch.tensor([0, 0, 2]), 4)
    assert found.per_class == (0.5, None, 1.0, None)
    assert found.counts == (2, 0, 1, 0)
    assert found.mean_class_accuracy == 0.75
    assert found.top5_accuracy is None
    assert found.calibration_error is None
    assert found.negative_log_likelihood is None


def test_top5_of_few_classes_is_one():
    assert accuracy_of(np.eye(3)[[1, 2]], [0, 0], 3).top5_accuracy == 1


@pytest.mark.parametrize(
    ("correct", "total", "interval"),
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662))],
)  # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, Table I, and the formula
def test_wilson_intervals(correct, total, interval):
    assert wilson(correct, total) == pytest.approx(interval, abs=5e-5)
    assert {type(end) for end in wilson(correct, total)} == {float}  # as JSON wants them


def test_mcnemar_is_the_binomial_test_of_the_disagreements():
    a = np.array([True] * 10 + [False] * 2 + [True] * 50)
    b = np.array([False] * 10 + [True] * 2 + [True] * 50)
    assert mcnemar(a, b) == pytest.approx(2 * (1 + 12 + 66) / 2**12)
    assert mcnemar(b.tolist(), a.tolist()) == mcnemar(a, b)
    assert mcnemar(a, a) == 1


def test_calibration_error():
    sure = torch.tensor([[0.9, 0.1]]).repeat(10, 1)
    assert expected_calibration_error(sure, [0] * 9 + [1]) == pytest.approx(0, abs=1e-6)
    assert expected_calibration_error(sure, [0] * 4 + [1] * 6) == pytest.approx(0.5)
    assert expected_calibration_error(torch.tensor([[1.0, 0.0]]), [0]) == 0
    assert negative_log_likelihood(torch.tensor([[0.25, 0.75]]), [0]) == pytest.approx(np.log(4))
    assert np.isfinite(negative_log_likelihood(torch.tensor([[0.0, 1.0]]), [0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0], 2), r"got \(2,\) and \(1,\)"),
        ((np.ones((2, 3)), [0, 1], 2), r"scores \(n, 2\).*got \(2, 3\)"),
        (([], [], 2), "n > 0"),
        (([0, 1], [0, 2], 2), "labels from 0 to 1, got 0 to 2"),
        (([0, -1], [0, 1], 2), "predictions from 0 to 1, got -1 to 0"),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        accuracy_of(*arguments)


def test_errors_of_the_statistics():
    with pytest.raises(ValueError, match="got 3 of 2"):
        wilson(3, 2)
    with pytest.raises(ValueError, match="total > 0, got 0 of 0"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="the same samples"):
        mcnemar([True], [True, False])
