"""Classifiers on one scale, against NumPy's medians."""

import numpy as np
import pytest
import torch

from bcnn.classify.fit import fit_classifier
from bcnn.classify.rescale import RESCALES, by_medians


@pytest.fixture
def problem():
    random = np.random.default_rng(0)
    labels = np.arange(90) % 3
    descriptors = random.normal(size=(90, 20)) + 2 * np.eye(20)[labels] * np.array([1, 2, 6])[labels][:, None]
    return descriptors.astype(np.float32), labels


def test_scores_are_shifted_and_divided_by_their_medians(problem):
    descriptors, labels = problem
    plain, scaled = (fit_classifier(descriptors, labels, 3, rescale=name, calibrate=False) for name in RESCALES)
    before, after = plain.scores(descriptors).numpy(), scaled.scores(descriptors).numpy()
    for c in range(3):
        own, others = before[labels == c, c], before[labels != c, c]
        expected = (before[:, c] - np.median(others)) / (np.median(own) - np.median(others))
        np.testing.assert_allclose(after[:, c], expected, atol=1e-4)
        assert np.median(after[labels == c, c]) == pytest.approx(1, abs=1e-4)
        assert np.median(after[labels != c, c]) == pytest.approx(0, abs=1e-4)


def test_calibration_sees_rescaled_scores(problem):
    descriptors, labels = problem
    plain, scaled = (fit_classifier(descriptors, labels, 3, rescale=name) for name in RESCALES)
    assert scaled.calibrated
    held_out = [np.median(fitted.cv_scores[labels == 2, 2]) for fitted in (plain, scaled)]
    assert abs(held_out[1] - 1) < 0.3 < abs(held_out[0] - held_out[1])


def test_a_classifier_that_tells_nothing_stays_as_it_is():
    K = torch.eye(4, dtype=torch.float64)
    beta, bias = torch.zeros(4, 2, dtype=torch.float64), torch.tensor([0.5, -0.5], dtype=torch.float64)
    found = by_medians(K, torch.tensor([0, 0, 1, 1]), beta, bias)
    assert torch.equal(found[0], beta)
    assert torch.equal(found[1], bias)


def test_unknown_names_are_refused(problem):
    with pytest.raises(ValueError, match="unknown rescale 'medain'; did you mean 'median'"):
        fit_classifier(*problem, 3, rescale="medain")
