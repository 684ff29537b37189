"""Averages over the views of an image."""

import pytest
import torch

from bcnn.classify.flip import average_views


def test_views_next_to_each_other_or_not():
    scores = torch.arange(12.0).reshape(6, 2)
    expected = torch.stack([scores[:2].mean(0), scores[2:4].mean(0), scores[4:].mean(0)])
    assert torch.equal(average_views(scores, torch.tensor([0, 0, 1, 1, 2, 2])), expected)
    order = [4, 0, 2, 5, 1, 3]
    assert torch.equal(average_views(scores[order], [i // 2 for i in order]), expected)


def test_groups_of_any_size_and_name():
    scores = torch.tensor([[1.0], [2.0], [6.0], [7.0]]).double()
    averaged = average_views(scores, ["b", "a", "a", "a"])
    assert torch.equal(averaged, torch.tensor([[5.0], [1.0]]).double())
    assert average_views(torch.empty(0, 3), []).shape == (0, 3)


def test_errors():
    with pytest.raises(ValueError, match=r"expected scores \(n, k\) and n groups, got \(2, 3\) and \(3,\)"):
        average_views(torch.ones(2, 3), [0, 0, 1])
