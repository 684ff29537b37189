"""Fitting on rows of views and testing on others is what its steps are, one by one."""

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from bcnn.classify import CLASSIFIERS
from bcnn.classify.accuracy import evaluate_scores
from bcnn.classify.evaluate import fit_and_test, fit_rows, score_rows
from bcnn.classify.fit import fit_classifier
from bcnn.classify.flip import average_views

from .builders import blobs


@dataclass
class Views:
    """Rows that know their descriptors."""

    descriptors: np.ndarray
    labels: torch.Tensor
    groups: torch.Tensor


def views(n: int, seed: int, *, num_views: int = 2) -> Views:
    """Images and slightly different views of them, next to each other."""
    X, labels = blobs(n=80, strength=0.1)
    chosen = np.random.default_rng(seed).permutation(80)[:n].repeat(num_views)
    noise = 0.01 * np.random.default_rng(seed + 1).normal(size=(len(chosen), X.shape[1]))
    groups = torch.arange(n).repeat_interleave(num_views)
    return Views(X[chosen] + noise, torch.from_numpy(labels[chosen]), groups)


def opened(rows: Views):
    return nullcontext(rows.descriptors)


@pytest.mark.parametrize("num_views", [1, 2])
@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_it_is_its_steps(kind, num_views):
    train, test = views(50, 0, num_views=num_views), views(30, 5, num_views=num_views)
    found = fit_and_test(train, test, 4, opened=opened, kind=kind, C=3.0, seed=2, rescale="median")
    fitted = fit_classifier(
        train.descriptors, train.labels, 4, groups=train.groups.numpy(), kind=kind, C=3.0, seed=2, rescale="median"
    )
    scores = average_views(fitted.scores(test.descriptors), test.groups)
    labels = test.labels[::num_views]
    assert torch.equal(found.classifier.weight, fitted.weight)
    assert found.classifier.temperature == fitted.temperature
    assert torch.equal(found.tested.scores, scores)
    assert torch.equal(found.tested.labels, labels)
    expected = evaluate_scores(scores / fitted.temperature, labels, 4)
    evaluation = found.tested.evaluation(fitted.temperature)
    assert (evaluation.accuracy, evaluation.interval) == (expected.accuracy, expected.interval)
    assert evaluation.negative_log_likelihood == expected.negative_log_likelihood
    assert evaluation.accuracy > 0.5
    assert found.tested.evaluation().accuracy == evaluation.accuracy


def test_rows_in_any_order_are_the_same_images():
    train, test = views(50, 0), views(30, 5)
    order = torch.randperm(60)
    mixed = Views(test.descriptors[order], test.labels[order], test.groups[order])
    fitted = fit_rows(train, 4, opened=opened, calibrate=False)
    one, other = (score_rows(rows, fitted.scores, 4, opened=opened) for rows in (test, mixed))
    torch.testing.assert_close(one.scores, other.scores)
    assert torch.equal(one.labels, other.labels)


def test_nothing_to_test():
    none = Views(np.empty((0, 300)), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
    tested = fit_and_test(views(50, 0), none, 4, opened=opened, calibrate=False).tested
    assert tested.scores.shape == (0, 4)
    assert tested.evaluation() is None


def test_features_are_open_no_longer_than_needed():
    events = []

    @contextmanager
    def watched(rows):
        events.append(("open", len(rows.labels)))
        yield rows.descriptors
        events.append(("closed", len(rows.labels)))

    fit_and_test(views(50, 0), views(30, 5), 4, opened=watched, calibrate=False)
    assert events == [("open", 100), ("closed", 100), ("open", 60), ("closed", 60)]


def test_errors_are_those_of_the_steps():
    train = views(50, 0)
    with pytest.raises(ValueError, match="unknown classifier 'tree'"):
        fit_and_test(train, train, 4, opened=opened, kind="tree")
    with pytest.raises(ValueError, match="as at training, got 7"):
        score_rows(
            Views(train.descriptors[:, :7], train.labels, train.groups),
            fit_rows(train, 4, opened=opened, calibrate=False).scores,
            4,
            opened=opened,
        )
