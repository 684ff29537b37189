"""The B-CNNs of two networks: which way maps are brought to one size, and the pairs that the papers take."""

import pytest
import torch

import bcnn


@pytest.mark.parametrize("pair", [("vgg_m", "vgg16"), ("vgg16", "alexnet")], ids=",".join)
def test_published_pairs(pair):
    torch.manual_seed(0)
    model = bcnn.build_model("bcnn", backbone=list(pair), weights=None, pooling="asymmetric", size=80)
    images = torch.rand(2, 3, 80, 80)
    with torch.no_grad():
        first, second = model.maps(images)
        found = model.head.pool(first, second)
    assert first.shape[2:] != second.shape[2:]
    # The second network's maps are resized to the first's, by bilinear interpolation.
    resized = torch.nn.functional.interpolate(
        second.double(), size=first.shape[2:], mode="bilinear", align_corners=False
    )
    expected = torch.einsum("bchw,bdhw->bcd", first.double(), resized) / first[0, 0].numel()
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-6 * float(expected.abs().max()))
    assert model.descriptor_length == first.shape[1] * second.shape[1]


def test_with_maps_of_one_size_nothing_is_resized():
    features = torch.rand(2, 4, 5, 5, dtype=torch.float64)
    other = torch.rand(2, 3, 5, 5, dtype=torch.float64)
    expected = torch.einsum("bchw,bdhw->bcd", features, other) / 25
    torch.testing.assert_close(bcnn.asymmetric_pool(features, other), expected)
