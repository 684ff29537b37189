"""Labels that held-out scores contradict: flipped ones are found, right ones are left alone."""

import numpy as np
import pytest
import torch

from bcnn.classify.suspects import HeldOut, held_out, judged_rows, suspects


def clusters(classes=4, images=20, views=2, noise=0.25, seed=0):
    """Descriptors around a centre of each class, two views an image; labels and groups of the rows."""
    random = np.random.default_rng(seed)
    centres = np.linalg.qr(random.normal(size=(16, 16)))[0][:classes]
    truth = np.repeat(np.arange(classes), images)
    points = centres[truth] + noise * random.normal(size=(len(truth), 16)) / 4
    rows = np.repeat(points, views, 0) + 0.01 * random.normal(size=(len(truth) * views, 16))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels, groups = np.repeat(truth, views), np.repeat(np.arange(len(truth)), views)
    return torch.from_numpy(rows), torch.from_numpy(labels), torch.from_numpy(groups)


def test_flipped_labels_are_found():
    rows, labels, groups = clusters()
    flipped = {3: 1, 25: 3, 77: 0}
    given = labels.clone()
    for image, label in flipped.items():
        given[groups == image] = label
    found = suspects(held_out(rows, given, groups, 4))
    assert {one.image for one in found} == set(flipped)
    for one in found:
        assert one.label == flipped[one.image]
        assert one.instead == int(labels[groups == one.image][0])  # what it is in truth
        assert one.probability > one.own
    assert [one.ratio for one in found] == sorted(one.ratio for one in found)


def test_right_labels_are_left_alone():
    rows, labels, groups = clusters()
    given = held_out(rows, labels, groups, 5)  # the fifth class has no images
    assert suspects(given) == []
    assert given.accuracy == 1
    assert given.probabilities.shape == (80, 5)
    assert torch.allclose(given.probabilities.sum(1), torch.ones(80, dtype=torch.float64))
    assert (given.probabilities[:, 4] == 0).all()


def test_a_class_of_one_image_is_not_judged():
    rows, labels, groups = clusters()
    labels[groups == 7] = 4  # alone
    given = held_out(rows, labels, groups, 5)
    assert 7 not in given.images.tolist()
    assert len(given.images) == 79


def test_a_label_counts_relative_to_its_class():
    # 0.08 is little for class 0, whose mean is 0.9 or so, and usual for class 1, which nothing tells from class 2.
    P = torch.tensor([[0.99, 0.0, 0.01]] * 20 + [[0.08, 0.02, 0.9]] + [[0.3, 0.08, 0.62]] * 10, dtype=torch.float64)
    labels = torch.tensor([0] * 21 + [1] * 10)
    (found,) = suspects(HeldOut(torch.arange(31), labels, P, 1.0))
    assert (found.image, found.instead, found.own, found.probability) == (20, 2, 0.08, 0.9)
    assert found.ratio == pytest.approx(0.08 / ((20 * 0.99 + 0.08) / 21))
    assert len(suspects(HeldOut(torch.arange(31), labels, P, 1.0), share=1.1)) == 11
    assert suspects(HeldOut(torch.arange(31), labels, P, 1.0), share=0.05) == []


@pytest.mark.parametrize(("classes", "images"), [(1, 20), (2, 2), (12, 1)])
def test_too_few_images_are_refused(classes, images):
    _, labels, groups = clusters(classes, images)
    with pytest.raises(ValueError, match="labels: expected at least 10 training images, of two classes or more"):
        judged_rows(labels, groups)
