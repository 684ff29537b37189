"""The estimator: scikit-learn's own checks on descriptors, and images of all kinds."""

import pickle
import warnings

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data, parametrize_with_checks

import bcnn
from bcnn.classify import CLASSIFIERS

from .builders import blobs, overlapping

TINY = {"backbone": "tiny", "weights": None, "size": 32, "C": 10.0}


REPEATED = "check_sample_weight_equivalence_on_dense_data"


@parametrize_with_checks(
    [bcnn.Classifier(classifier=kind) for kind in CLASSIFIERS],
    expected_failed_checks=lambda estimator: {
        REPEATED: "the temperature: repeated rows fall into several folds, a weighted one into one; see the next test"
    },
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


class WithoutProbabilities(bcnn.Classifier):
    predict_proba = property()  # hasattr says no


@pytest.mark.parametrize("kind", CLASSIFIERS)
def test_weights_are_repeated_rows_to_scikit_learn_but_for_the_temperature(kind):
    check_sample_weight_equivalence_on_dense_data("Classifier", WithoutProbabilities(classifier=kind))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    ("kind", "reference"),
    [
        ("svm", LinearSVC(loss="hinge", tol=1e-10, max_iter=1_000_000)),
        ("svm_squared", LinearSVC(tol=1e-10, max_iter=1_000_000)),
        ("logistic", LogisticRegression(tol=1e-10, max_iter=100_000)),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_decisions_as_scikit_learn(kind, reference, k, weighted):
    X, labels = overlapping(k=k)
    weights = np.random.default_rng(0).uniform(0.1, 3, len(X)) if weighted else None
    ours = bcnn.Classifier(classifier=kind).fit(X, labels, sample_weight=weights)
    theirs = reference.fit(X, labels, sample_weight=weights)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-4)
    assert ours.decision_function(X).shape == theirs.decision_function(X).shape
    if kind == "logistic":
        own = (ours._scores(X)).softmax(-1)  # before the temperature that held-out samples call for
        np.testing.assert_allclose(own, theirs.predict_proba(X), atol=1e-4)


def test_in_pipelines_and_grids():
    X, labels = blobs(n=60, d=40, k=3)
    names = np.array(["ant", "bee", "cat"])[labels]
    search = GridSearchCV(make_pipeline(StandardScaler(), bcnn.Classifier()), {"classifier__C": [1e-3, 1.0]}, cv=2)
    search.fit(X, names)
    assert set(search.predict(X)) <= set(names)
    probabilities = search.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (search.best_estimator_[-1].classes_[probabilities.argmax(1)] == search.predict(X)).all()


def pictures(n: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Stripes across and along."""
    rng = np.random.default_rng(0)
    stripes = np.where(np.arange(40) % 8 < 4, 200, 50)
    labels = np.array(["across", "along"])[np.arange(n) % 2]
    images = [np.broadcast_to(stripes[:, None] if name == "across" else stripes, (40, 40)) for name in labels]
    noisy = [image[..., None] + rng.integers(0, 50, (40, 40, 3)) for image in images]
    return np.stack(noisy).astype(np.uint8), labels


def test_images_as_arrays_pictures_and_paths(tmp_path):
    arrays, labels = pictures()
    opened = [Image.fromarray(array) for array in arrays]
    paths = [tmp_path / f"{i}.png" for i in range(len(arrays))]
    for image, path in zip(opened, paths, strict=True):
        image.save(path)
    fitted = bcnn.Classifier(**TINY).fit(arrays[:8], labels[:8])
    assert fitted.score(arrays[8:], labels[8:]) == 1
    assert fitted.n_features_in_ == 32 * 33 // 2
    expected = fitted.decision_function(arrays)
    assert expected.shape == (12,)
    for same in (opened, paths, [str(path) for path in paths], np.array([str(path) for path in paths]), list(arrays)):
        np.testing.assert_allclose(fitted.decision_function(same), expected, atol=1e-6)
    again = bcnn.Classifier(**TINY).fit(paths[:8], labels[:8])
    np.testing.assert_allclose(again.decision_function(arrays), expected, atol=1e-6)


def test_flips_are_averaged():
    arrays, labels = pictures()
    fitted = bcnn.Classifier(**TINY).fit(arrays, labels)
    mirrored = arrays[:, :, ::-1]
    np.testing.assert_allclose(fitted.decision_function(mirrored), fitted.decision_function(arrays), atol=1e-5)
    single = bcnn.Classifier(**TINY, flips=False).fit(arrays, labels)
    assert not np.allclose(single.decision_function(mirrored), single.decision_function(arrays), atol=1e-5)


def test_views_share_the_weight_of_their_image():
    arrays, labels = pictures()
    weights = np.arange(12) % 3
    fitted = bcnn.Classifier(**TINY).fit(arrays, labels, sample_weight=weights)
    rows = np.repeat(np.arange(12), weights)
    repeated = bcnn.Classifier(**TINY).fit(arrays[rows], labels[rows])
    np.testing.assert_allclose(fitted.decision_function(arrays), repeated.decision_function(arrays), atol=1e-5)


def test_a_class_without_weight_is_never_predicted():
    X, labels = blobs(n=60, k=3)
    fitted = bcnn.Classifier().fit(X, labels, sample_weight=labels != 1)
    assert list(fitted.classes_) == [0, 1, 2]
    assert set(fitted.predict(X)) == {0, 2}
    assert fitted.predict_proba(X)[:, 1].max() < 1e-6


def test_weights_in_a_grid():
    X, labels = blobs(n=60, d=40, k=3)
    search = GridSearchCV(bcnn.Classifier(), {"C": [1.0]}, cv=2).fit(X, labels, sample_weight=1.0 * (labels != 1))
    assert set(search.predict(X)) == {0, 2}


def test_fitted_ones_can_be_cloned_and_pickled():
    arrays, labels = pictures()
    fitted = bcnn.Classifier(**TINY, batch=5).fit(arrays, labels)
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.decision_function(arrays), fitted.decision_function(arrays))
    assert not hasattr(clone(fitted), "classifier_")
    assert clone(fitted).get_params() == fitted.get_params()


def test_errors():
    arrays, labels = pictures()
    with pytest.raises(ValueError, match="expected one label per image, got 12"):
        bcnn.Classifier(**TINY).fit(arrays, labels[:3])
    with pytest.raises(ValueError, match="got one class, across"):
        bcnn.Classifier(**TINY).fit(arrays[:2], ["across", "across"])
    with pytest.raises(ValueError, match=r"uint8 arrays \(H, W, 3\), got float64"):
        bcnn.Classifier(**TINY).fit([array / 255 for array in arrays], labels)
    with pytest.raises(ValueError, match=r"one sample weight per label, got shape \(3,\) and 12 labels"):
        bcnn.Classifier(**TINY).fit(arrays, labels, sample_weight=[1, 2, 3])
    X, y = blobs()
    with pytest.raises(ValueError, match=r"got -1\.0 in row 0"):
        bcnn.Classifier().fit(X, y, sample_weight=-np.ones(len(X)))
    with pytest.raises(ValueError, match="expected descriptors, as at training, got images"):
        bcnn.Classifier().fit(X, y).predict(arrays)
    with pytest.raises(ValueError, match="unknown classifier 'tree'"):
        bcnn.Classifier(classifier="tree").fit(X, y)
