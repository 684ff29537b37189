"""Picked filters, mined parts, weighted Fisher vectors."""

import numpy as np
import pytest
import torch

from bcnn.parts.shapes import Maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.pd_swfv import location_weights, mine_parts, pick_filters

from .encoders import fitted, scattered
from .helpers import locations


def with_parts(images=24, channels=6, side=5, seed=0):
    """Noise, and in every image one location where channels 1 and 2 speak together; where it is comes back as well."""
    generator = torch.Generator().manual_seed(seed)
    features = 0.3 * torch.randn(images, channels, side, side, generator=generator, dtype=torch.float64).abs()
    where = torch.randint(side * side, (images,), generator=generator)
    features.flatten(2)[torch.arange(images), 1, where] += 2  # a view: flatten copies nothing here
    features.flatten(2)[torch.arange(images), 2, where] += 2
    return features, where


def test_equal_weights_give_the_plain_fisher_vector():
    features = scattered(6, 4, 5, 5)
    part, plain = (fitted(f"{name}(num_words=3{more})", features) for name, more in
                   (("pd_swfv", ", num_parts=2"), ("fisher", "")))  # fmt: skip
    assert not torch.allclose(part(features), plain(features).flatten(1))
    torch.nn.init.zeros_(part.detectors.weight)
    torch.testing.assert_close(part(features), plain(features).flatten(1))


def test_it_is_the_fisher_vector_of_locations_repeated_by_their_weight():
    """Whole numbers of copies are weights."""
    features = scattered(1, 4, 1, 3)
    mixture = fitted("fisher(num_words=3)", scattered(6, 4, 5, 5)).mixture
    copies = torch.tensor([1, 3, 2])
    repeated = features.flatten(2).repeat_interleave(copies, -1).mT
    equal = torch.full((1, 6), 1 / 6, dtype=torch.float64)
    torch.testing.assert_close(
        mixture.fisher_vector(features.flatten(2).mT, (copies / 6)[None].double()),
        mixture.fisher_vector(repeated, equal),
    )


def test_weights_are_the_normalized_sum_of_probabilities():
    r = torch.tensor([[[0.0, 100.0], [-100.0, -100.0], [0.0, -100.0]]]).double()
    w = torch.full((1, 3), 1 / 3).double()
    torch.testing.assert_close(location_weights(r, w), torch.tensor([[0.75, 0.0, 0.25]]).double())
    w = torch.tensor([[0.0, 0.5, 0.5]]).double()
    torch.testing.assert_close(location_weights(r, w), torch.tensor([[0.0, 0.0, 1.0]]).double())


def test_strong_and_consistent_filters_are_picked():
    peaks = torch.tensor([[9.0, 30.0, 1.0], [9.0, 0.0, 1.0], [9.0, 0.0, 1.0], [9.0, 0.0, 1.0]])  # always, once, never
    order = pick_filters(peaks, torch.zeros(3), torch.ones(3), 3)
    assert order.tolist() == [0, 2, 1]
    assert pick_filters(peaks, torch.zeros(3), torch.tensor([9.0, 1.0, 0.01]), 1).tolist() == [2]  # in own deviations


def test_parts_are_found():
    """The planted pattern: its filters are picked, and detectors respond where it is, in images never seen."""
    part = fitted("pd_swfv(num_words=2, num_parts=2)", with_parts()[0])
    assert sorted(part.filters.tolist()) == [1, 2]
    features, where = with_parts(seed=1)
    points = features.flatten(2).mT
    r = torch.nn.functional.normalize(points, dim=-1) @ part.detectors.weight.mT + part.detectors.bias
    assert (r.argmax(1) == where[:, None]).double().mean() > 0.9
    weights = location_weights(r, torch.full(r.shape[:2], 1 / 25).double())
    there = weights.take_along_dim(where[:, None], 1)
    assert (there > 3 / 25).double().mean() > 0.9  # three times an equal share


def test_detectors_are_classifiers_of_their_positives():
    generator = torch.Generator().manual_seed(0)
    proposals = torch.rand(10, 4, 5, generator=generator)
    proposals[:, 2, 3] += 5
    found = mine_parts(proposals, torch.tensor([3]), np.random.default_rng(0).random((50, 5), np.float32), num_rounds=2)
    assert found.shape == (1, 6)
    unit = torch.nn.functional.normalize(proposals, dim=-1).double()
    assert ((unit @ found[0, :-1] + found[0, -1]).argmax(-1) == 2).all()


def test_features_of_parts_follow():
    features, where = with_parts()
    part = fitted("pd_swfv(num_words=2, num_parts=1, parts=True)", features)
    result = part(features).detach()
    assert result.shape == (24, 2 * 2 * 6 + 6)
    swfv, parts = result[:, :24], result[:, 24:]
    for half in (swfv, parts):  # each of length 1 after the signed square root
        torch.testing.assert_close(half.abs().sum(-1), torch.ones(24).double())
    alone = fitted("pd_swfv(num_words=2, num_parts=1)", features)(features).detach()
    torch.testing.assert_close(swfv, alone / alone.abs().sum(-1, keepdim=True))
    expected = np.stack([points[i] / points[i].sum() for points, i in zip(locations(features), where, strict=True)])
    right = np.isclose(parts.numpy(), expected, rtol=1e-5).all(-1)
    assert right.mean() > 0.9


def test_bad_options_are_named():
    with pytest.raises(ValueError, match="expected `num_parts` up to 4, a filter for each, got 5"):
        POOLINGS.make("pd_swfv(num_parts=5)", inputs=(Maps(4),))
