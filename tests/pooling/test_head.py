"""From features to descriptor: every preset against the naive loop, any order, layout, mask, precision and scale."""

import numpy as np
import pytest
import torch

import bcnn
from bcnn.pooling.head import PAPERS, PRESETS, Head, describe
from bcnn.pooling.triangle import full_matrix

from .helpers import locations, naive_descriptor, relu_features, ridge_of, thin_option


@pytest.mark.parametrize("triangle", [True, False])
@pytest.mark.parametrize("shape", [(3, 6, 4, 4), (3, 9, 2, 2), (3, 8, 1, 1)], ids=["thick", "thin", "one location"])
@pytest.mark.parametrize("preset", PAPERS)
def test_preset_is_the_naive_loop(preset, shape, triangle):
    features = relu_features(*shape)
    sharp = ["signed_sqrt(1e-12)" if name == "signed_sqrt" else name for name in PRESETS[preset].normalize]
    result = describe(features, preset, triangle=triangle, normalize=sharp)
    default = describe(features, preset, triangle=triangle)
    assert (default * result).sum(-1).min() > 1 - 1e-5
    assert result.shape == (3, Head(preset, triangle=triangle).length(shape[1]))
    if triangle and preset != "average":
        result = full_matrix(result).flatten(1)
    expected = np.stack([naive_descriptor(points, preset, ridge_of(preset)) for points in locations(features)])
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=2e-8)


def test_any_order_of_normalizations():
    features = relu_features(2, 6, 4, 4)
    A = bcnn.bilinear_pool(features, eps=1e-2)
    expected = bcnn.sqrtm(A / A.flatten(1).norm(dim=1)[:, None, None])
    result = Head(normalize=("l2", "matrix_sqrt"), eps=1e-2, triangle=False)(features)
    torch.testing.assert_close(result, expected.flatten(1), rtol=1e-9, atol=1e-9)
    twice = Head(normalize=("matrix_power(0.5)", "matrix_power(0.5)"), eps=1e-2, triangle=False)(features)
    torch.testing.assert_close(twice, bcnn.powm(A, 0.25).flatten(1), rtol=1e-9, atol=1e-9)
    with pytest.raises(bcnn.NotPositiveDefiniteError):  # entrywise roots need not be definite
        describe(relu_features(2, 64, 5, 6), normalize=("signed_sqrt", "matrix_sqrt"))
    back = describe(features, normalize=("l2", "signed_sqrt"), eps=1e-2)
    full = describe(features, normalize=("l2", "signed_sqrt"), eps=1e-2, triangle=False)
    torch.testing.assert_close(full_matrix(back).flatten(1), full)


def test_layouts_agree():
    maps = relu_features(2, 6, 3, 4)
    for preset in PAPERS:
        expected = describe(maps, preset)
        torch.testing.assert_close(describe(maps.flatten(2), preset), expected)
        torch.testing.assert_close(describe(maps.flatten(2).mT, preset, layout="tokens"), expected)


def test_masks_drop_locations():
    features = relu_features(2, 6, 3, 4)
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[:, :2, 1:] = True
    for preset in PAPERS:
        torch.testing.assert_close(
            describe(features, preset, mask=mask), describe(features[:, :, :2, 1:], preset), rtol=1e-6, atol=1e-9
        )


def test_asymmetric_head_takes_two_features():
    head = Head(pooling="asymmetric", normalize=("signed_sqrt", "l2"))
    first, second = relu_features(2, 5, 4, 4), relu_features(2, 3, 8, 8, seed=1)
    assert head(first, second).shape == (2, head.length(5, 3))
    expected = bcnn.l2_normalize(bcnn.signed_sqrt(bcnn.asymmetric_pool(first, second).flatten(1)))
    torch.testing.assert_close(head(first, second), expected)
    with pytest.raises(ValueError, match="expected 2 features for 'asymmetric' pooling, got 1"):
        head(first)
    with pytest.raises(ValueError, match="expected 1 features for 'bilinear' pooling, got 2"):
        Head("bcnn")(first, second)
    with pytest.raises(ValueError, match="asymmetric: expected the features of 2 networks, got those of 1"):
        Head("bcnn", 5, pooling="asymmetric")
    torch.testing.assert_close(describe([first, second], pooling="asymmetric", normalize=()).flatten(1),
                               bcnn.asymmetric_pool(first, second).flatten(1))  # fmt: skip


def test_autocast_and_empty_batches():
    features = relu_features(2, 32, 3, 3, dtype=torch.float32)
    for preset in PAPERS:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = describe(features, preset)
        assert torch.equal(inside, describe(features, preset))
        head = Head(preset)
        assert head(features[:0]).shape == (0, head.length(32))


def test_the_scale_of_the_features_does_not_matter():
    features = relu_features(2, 16, 3, 3)
    for preset in ("average", "bcnn", "improved_bcnn"):
        expected = describe(features, preset)
        for scale in (1e-3, 1e3):
            torch.testing.assert_close(describe(scale * features, preset), expected, rtol=1e-5, atol=1e-7)


def test_stored_matrices_are_normalized_in_float32():
    features = relu_features(2, 8, 4, 4)
    A = bcnn.bilinear_pool(features, eps=1e-2)
    A[0, 3] = A[0, :, 3] = 0  # a dead channel
    for preset in ("bcnn", "improved_bcnn"):
        head = Head(preset, eps=1e-2)
        exact = head.normalize_matrix(A)
        for dtype, tolerance in ((torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
            half = head.normalize_matrix(A.to(dtype))
            assert half.dtype == torch.float32
            torch.testing.assert_close(half.double(), exact, rtol=0, atol=tolerance)
    torch.testing.assert_close(
        Head(eps=1e-2).normalize_matrix(bcnn.bilinear_pool(features, eps=1e-2)), describe(features, eps=1e-2)
    )
    with pytest.raises(ValueError, match=r"pooled features of shape \(B, d, d\), got \(2, 36\)"):
        head.normalize_matrix(torch.zeros(2, 36))
    with pytest.raises(ValueError, match=r"shape \(B, d\), got \(2, 3, 3\)"):
        Head("average").normalize_matrix(torch.zeros(2, 3, 3))


@pytest.mark.parametrize("preset", PAPERS)
@pytest.mark.parametrize("thin", [None, False])
def test_overflow_is_an_error_and_not_a_nan(preset, thin):
    features = relu_features(2, 64, 3, 3, dtype=torch.float32) * 1e20
    if preset == "average":
        assert describe(features, preset).isfinite().all()
    else:
        with pytest.raises(ValueError, match="finite `features` and sums"):
            describe(features, preset, **thin_option(preset, thin))
