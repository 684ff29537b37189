"""Paired intervals and tests against SciPy's bootstrap and permutation test."""

import inspect

import numpy as np
import pytest
from scipy import stats

from bcnn.classify.accuracy import mcnemar
from bcnn.classify.paired import mean_interval, paired_interval, paired_p


def seeded(function):
    """The argument that makes it repeatable: SciPy renamed it in version 1.15."""
    name = "rng" if "rng" in inspect.signature(function).parameters else "random_state"
    return {name: np.random.default_rng(1)}


def methods(n=400, shares=(0.7, 0.78), seed=0, seeds=1):
    """Two methods that are right on some of the same images."""
    random = np.random.default_rng(seed)
    hard = random.normal(size=n)
    rights = []
    for share in shares:
        draws = [(hard + random.normal(size=n)) < np.quantile(hard, share) * 1.2 for _ in range(seeds)]
        rights.append(np.mean(draws, axis=0))
    return rights


@pytest.mark.parametrize("seeds", [1, 3])
def test_interval_of_a_difference_is_scipys(seeds):
    a, b = methods(seeds=seeds)
    expected = stats.bootstrap(
        (a - b,), np.mean, n_resamples=20_000, method="percentile", **seeded(stats.bootstrap)
    ).confidence_interval
    np.testing.assert_allclose(paired_interval(a, b), expected, atol=4e-3)


def test_interval_of_a_mean_is_scipys():
    a, _ = methods(seeds=3)
    expected = stats.bootstrap(
        (a,), np.mean, n_resamples=20_000, method="percentile", **seeded(stats.bootstrap)
    ).confidence_interval
    np.testing.assert_allclose(mean_interval(a), expected, atol=4e-3)
    low, high = mean_interval(a, level=0.5)
    assert mean_interval(a)[0] < low < a.mean() < high < mean_interval(a)[1]


@pytest.mark.parametrize("shares", [(0.7, 0.7), (0.7, 0.73)])
def test_p_over_seeds_is_scipys_permutation_test(shares):
    a, b = methods(seeds=3, shares=shares)
    expected = stats.permutation_test(
        (a, b),
        lambda x, y, axis: np.mean(x - y, axis),
        permutation_type="samples",
        n_resamples=20_000,
        **seeded(stats.permutation_test),
    ).pvalue
    assert paired_p(a, b) == pytest.approx(expected, abs=0.015)


def test_p_of_one_seed_is_mcnemars():
    a, b = methods()
    assert paired_p(a, b) == mcnemar(a > 0, b > 0)


def test_equal_methods_cannot_be_told_apart():
    a, _ = methods(seeds=3)
    assert paired_p(a, a) == 1.0
    assert paired_interval(a, a) == (0.0, 0.0)


def test_p_is_never_zero():
    shares = np.full(500, 1 / 3)
    assert 0 < paired_p(shares, np.zeros(500)) < 1e-4


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="same images, got 2 and 3"):
        paired_interval([0, 1], [0, 1, 1])
    with pytest.raises(ValueError, match="at least one image, got shape"):
        mean_interval([])
    with pytest.raises(ValueError, match="finite number an image"):
        paired_p([0.5, float("nan")], [0, 1])
