"""The shares of regions: exact where the score is linear in A, adding up where the head is homogeneous."""

import pytest
import torch

import bcnn
from bcnn.models.explain import regions


def network(preset="improved_bcnn", **options):
    torch.manual_seed(0)
    options = {"backbone": "tiny", "num_classes": 3, "weights": None, **options}
    return bcnn.build_model(preset, **options).eval()


def images(count=2, side=48):
    return torch.randn(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def test_on_a_without_normalizations_the_split_is_that_of_the_formula():
    model = network("bcnn", normalize=(), triangle=False).double()
    pixels, labels = images().double(), torch.tensor([2, 0])
    found = regions(model, pixels, labels, engine="torch")
    (x,) = model.maps(pixels)  # (B, d, h, w)
    d, n = x.shape[1], x.shape[2] * x.shape[3]
    W = model.scorer.weight.reshape(3, d, d)[labels]  # (B, d, d)
    expected = torch.einsum("bihw,bij,bjhw->bhw", x, W, x) / n
    assert found.adds_up
    assert found.shares.dtype == torch.float64
    torch.testing.assert_close(found.shares, expected, rtol=1e-9, atol=1e-12)
    scores = model(pixels).gather(1, labels[:, None])[:, 0]
    torch.testing.assert_close(found.scores, scores)
    torch.testing.assert_close(found.shares.sum((1, 2)), scores - model.scorer.bias[labels], rtol=1e-9, atol=1e-12)


def test_of_a_triangle_and_a_length_the_split_is_the_same_one_divided_by_the_length():
    model = network("bcnn", normalize=("l2",)).double()
    pixels, labels = images().double(), torch.tensor([1, 1])
    found = regions(model, pixels, labels, engine="torch")
    (x,) = model.maps(pixels)
    from bcnn.pooling.triangle import full_matrix

    A = torch.einsum("bihw,bjhw->bij", x, x) / x[0, 0].numel()
    W = full_matrix(model.scorer.weight)[labels]
    expected = torch.einsum("bihw,bij,bjhw->bhw", x, W, x) / x[0, 0].numel() / A.norm(dim=(1, 2))[:, None, None]
    torch.testing.assert_close(found.shares, expected, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(
    "options",
    [{"preset": "average"}, {"preset": "bcnn"}, {"preset": "improved_bcnn"}, {"preset": "mpn_cov"},
     {"preset": "improved_bcnn", "normalize": ("matrix_power(0.3)", "l2")},
     {"preset": "bcnn", "backbone": ["tiny", "tiny"], "pooling": "asymmetric"},
     {"preset": "bcnn", "normalize": (), "scorer": "lrbp(dim=8, rank=4)"}],
)  # fmt: skip
def test_shares_add_up_wherever_the_head_is_homogeneous(options):
    model = network(**options).double()
    labels = torch.tensor([0, 2])
    found = regions(model, images().double(), labels, engine="torch")
    assert found.adds_up
    torch.testing.assert_close(found.shares.sum((1, 2)), found.scores - found.bias, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found.bias, model.scorer.bias[labels].detach())


def test_a_logarithm_does_not_add_up_and_says_so():
    found = regions(network("o2p").double(), images().double(), torch.tensor([0, 2]), engine="torch")
    assert not found.adds_up
    assert found.shares.isfinite().all()
    assert found.shares.std() > 0


def test_the_gradient_is_that_of_finite_differences():
    """Features of one location a little larger: the score changes by the share, length held, times the degree."""
    model = network("improved_bcnn", normalize=("matrix_sqrt", "signed_sqrt")).double()
    pixels, label = images(1).double(), torch.tensor([1])
    found = regions(model, pixels, label, engine="torch")
    maps = model.maps(pixels)[0].detach()
    h = 1e-6
    for row, column in ((0, 0), (2, 3)):
        up, down = maps.clone(), maps.clone()
        up[0, :, row, column] *= 1 + h
        down[0, :, row, column] *= 1 - h
        slope = (model.score_maps([up]) - model.score_maps([down]))[0, 1] / (2 * h)
        assert float(found.shares[0, row, column]) * 0.5 == pytest.approx(slope.item(), rel=1e-4, abs=1e-9)


def test_an_ensemble_adds_up_its_members():
    first, second = network("bcnn").double(), network("improved_bcnn").double()
    both = bcnn.Ensemble([first, second], [0.25, 0.75]).double()
    pixels, labels = images().double(), torch.tensor([0, 1])
    found, one, two = (regions(m, pixels, labels, engine="torch") for m in (both, first, second))
    torch.testing.assert_close(found.shares, 0.25 * one.shares + 0.75 * two.shares)
    torch.testing.assert_close(found.scores, both(pixels).gather(1, labels[:, None])[:, 0])
    assert found.adds_up
    torch.testing.assert_close(found.shares.sum((1, 2)), found.scores - found.bias, rtol=1e-5, atol=1e-8)


def test_networks_that_see_other_sizes_share_one_grid():
    small = network("bcnn", size=32)
    both = bcnn.Ensemble([network("bcnn", size=64), small])
    found = regions(both, images(side=64), torch.tensor([0, 1]))
    assert found.shares.shape[1:] == both.members[0].maps(images(side=64))[0].shape[2:]
    assert not found.adds_up


def test_what_has_no_place_in_the_image_is_refused():
    with pytest.raises(ValueError, match="expected a network that sees the image as it is, got one behind the front"):
        regions(network(front="stn"), images(), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match="expected a network with a scorer"):
        regions(network(num_classes=None), images(), torch.tensor([0, 1]))
