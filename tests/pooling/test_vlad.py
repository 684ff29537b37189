"""VLAD against a loop and scikit-learn's k-means."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from .encoders import fitted, scattered
from .helpers import locations


def k_means(part):
    """Scikit-learn's, with the same centres."""
    centres = part.centres.detach().double().numpy()
    own = KMeans(len(centres), n_init=1, init=centres, max_iter=1).fit(centres)
    own.cluster_centers_ = centres
    return own


def by_hand(points, part):
    """Word by word, location by location."""
    centres = part.centres.detach().double().numpy()
    V = np.zeros_like(centres)
    for x, k in zip(points, k_means(part).predict(points), strict=True):
        V[k] += (x - centres[k]) / len(points)
    return V


def test_it_is_the_loop():
    features = scattered(6, 4, 5, 5)
    part = fitted("vlad(num_words=5, intra=False)", features)
    expected = np.stack([by_hand(points, part) for points in locations(features)])
    np.testing.assert_allclose(part(features).numpy(), expected, rtol=1e-9, atol=1e-12)


def test_intra_normalization_gives_every_word_length_one():
    features = scattered(6, 4, 5, 5)
    part = fitted("vlad(num_words=5)", features)
    expected = np.stack([by_hand(points, part) for points in locations(features)])
    length = np.linalg.norm(expected, axis=-1, keepdims=True)
    expected = np.divide(expected, length, out=np.zeros_like(expected), where=length > 0)  # a word that nothing is near
    np.testing.assert_allclose(part(features).numpy(), expected, rtol=1e-6, atol=1e-9)


def test_the_words_are_a_clustering():
    """Each is the mean of what lies nearest to it, so that differences over all training images vanish."""
    features = scattered(20, 4, 5, 5)
    part = fitted("vlad(num_words=5, intra=False)", features)
    assert float(part(features).mean(0).abs().max()) == pytest.approx(0, abs=1e-4)


def test_the_nearest_word_is_found_far_from_zero():
    features = scattered(6, 4, 5, 5, dtype=torch.float32) + 1000
    part = fitted("vlad(num_words=5, intra=False)", features)
    expected = np.stack([by_hand(points, part) for points in locations(features)])
    np.testing.assert_allclose(part(features).numpy(), expected, rtol=1e-4, atol=1e-4)
