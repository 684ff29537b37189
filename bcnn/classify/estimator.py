"""`bcnn.Classifier`: scikit-learn's fit and predict over images or descriptors.

Paper: Sec. 3.2 with the defaults: frozen network, improved B-CNN, images and mirror images, one-vs-rest SVMs, C = 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ..data.preprocess import open_image
from ..models.views import in_views
from . import CLASSIFIERS
from .fit import fit_classifier
from .flip import average_views
from .gram import as_matrix

if TYPE_CHECKING:
    from PIL.Image import Image

    from ..models.bcnn import BCNN

Array = np.ndarray[Any, Any]


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """A linear classifier over bilinear descriptors of images, or over any features, as a scikit-learn estimator.

    `fit` takes images (paths, Pillow images, or uint8 arrays of shape (H, W, 3)) or a matrix of numbers (n, d), which
    is used as it is: the options of the network are then without effect.

    Args:
        preset: head of the network, as in `bcnn.build_model`.
        backbone: the network.
        weights: its weights.
        size: the side of the images; None for that of the network.
        classifier: a name of `CLASSIFIERS`: "svm", "svm_squared" or "logistic".
        C: weight of the losses.
        rescale: "median" brings the classifiers of the classes to one scale, as the authors' scripts do; or "none".
        flips: train on mirrored images, too, and average over both at prediction.
        batch: images at a time through the network.
        random_state: of the folds that calibrate probabilities, and of random weights (weights=None).

    Attributes:
        classes_: the labels, sorted.
        classifier_: the `LinearClassifier`, with its duality gap and cross-validated accuracy.
        n_features_in_: the number of columns; of images the length of their descriptors.

    Example:
        >>> X, y = np.array([[0.0], [1.0], [3.0], [4.0]]), np.array(["low", "low", "high", "high"])
        >>> Classifier(C=10).fit(X, y).predict([[0.5], [3.5]])
        array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        preset: str = "improved_bcnn",
        backbone: str = "vgg16",
        weights: str | None = "default",
        size: int | None = None,
        classifier: str = "svm",
        C: float = 1.0,
        rescale: str = "none",
        flips: bool = True,
        batch: int = 8,
        random_state: int | None = 0,
    ):
        self.preset = preset
        self.backbone = backbone
        self.weights = weights
        self.size = size
        self.classifier = classifier
        self.C = C
        self.rescale = rescale
        self.flips = flips
        self.batch = batch
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Classifier:
        """Train on images or numbers X and labels y of any kind; `sample_weight` multiplies their losses, shape (n,).

        An image's views share its weight. A class whose samples all weigh 0 is known but never predicted.
        """
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        if self.batch < 1:
            raise ValueError(f"Classifier: expected batch >= 1, got {self.batch}.")
        if are_images(X):
            images, labels = list(X), np.asarray(y)
            if labels.shape != (len(images),):
                raise ValueError(f"Classifier: expected one label per image, got {len(images)} and {labels.shape}.")
            self.model_: BCNN | None = self._build(seed)
            descriptors, groups = self._describe(images)
            self.n_features_in_ = descriptors.shape[1]
        else:
            descriptors, labels = validate_data(self, X, y, dtype=(np.float64, np.float32))
            groups = np.arange(len(descriptors))
            self.model_ = None
        check_classification_targets(labels)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weights is not None and weights.shape != labels.shape:
            raise ValueError(
                f"Classifier: expected one sample weight per label, got shape {weights.shape} and {len(labels)} labels."
            )
        self.classes_, own = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"Classifier: expected samples of at least 2 classes, got one class, {self.classes_[0]}; add another."
            )
        self.classifier_ = fit_classifier(
            as_matrix(descriptors), own[groups], len(self.classes_),
            kind=self.classifier, C=self.C, rescale=self.rescale, groups=groups, seed=seed,
            sample_weight=None if weights is None else weights[groups],
        )  # fmt: skip
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores, shape (n, k); of two classes the score of the second, shape (n,)."""
        scores = self._scores(X)
        if len(self.classes_) > 2:
            return scores.numpy()
        difference = scores[:, 1] - scores[:, 0]
        return (difference / 2 if CLASSIFIERS[self.classifier_.kind].one_vs_rest else difference).numpy()

    def predict(self, X: Any) -> Array:
        """The labels of the highest scores, shape (n,)."""
        scores = self._scores(X)
        return np.asarray(self.classes_[scores.argmax(1).numpy()])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities by the temperature that held-out samples call for, shape (n, k)."""
        scores = self._scores(X)
        return self.classifier_.probabilities(scores).numpy()

    def _scores(self, X: Any) -> Tensor:
        """Shape (n, k), averaged over the views of images."""
        check_is_fitted(self, "classifier_")
        if are_images(X):
            if self.model_ is None:
                raise ValueError("Classifier: expected descriptors, as at training, got images.")
            descriptors, groups = self._describe(list(X))
            return average_views(self.classifier_.scores(descriptors), groups)
        return self.classifier_.scores(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def _build(self, seed: int) -> BCNN:
        from ..models.build import build_model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return build_model(self.preset, backbone=self.backbone, weights=self.weights, size=self.size)

    def _describe(self, images: list[Any]) -> tuple[Array, Array]:
        """Descriptors of all views, and the image each belongs to."""
        model = self.model_
        assert model is not None
        blocks = []
        for start in range(0, len(images), self.batch):
            batch = images[start : start + self.batch]
            pictures = [np.asarray(model.preprocessing.fit(open_any(image))) for image in batch]
            (found,) = in_views(pictures, model.preprocessing, lambda x: [model.describe(x)], flips=self.flips)
            blocks.append(found.flatten(0, 1).numpy())
        return np.concatenate(blocks), np.repeat(np.arange(len(images)), 1 + self.flips)


def are_images(X: Any) -> bool:
    """Whether X is a list of paths or images, or an array of images, rather than a matrix of numbers."""
    from PIL.Image import Image

    if isinstance(X, np.ndarray) and X.dtype != object and X.dtype.kind not in "US":
        return X.ndim == 4 and X.dtype == np.uint8
    if not isinstance(X, (list, tuple, np.ndarray)) or not len(X):
        return False
    first = X[0]
    return isinstance(first, (str, Path, Image)) or (isinstance(first, np.ndarray) and first.ndim == 3)


def open_any(image: Any) -> Image:
    """A path, an array (H, W, 3) of bytes or a Pillow image as a Pillow image."""
    from PIL.Image import fromarray

    if isinstance(image, (str, Path)):
        return open_image(Path(image))
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(
                f"Classifier: expected images as uint8 arrays (H, W, 3), got {image.dtype} of shape {image.shape}."
            )
        return fromarray(image)
    result: Image = image
    return result
