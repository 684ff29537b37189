"""Every pooling against a loop over locations, for every layout, with and without a mask."""

import numpy as np
import pytest
import torch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.parts.shapes import Maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.asymmetric import asymmetric_pool
from bcnn.pooling.average import average_pool
from bcnn.pooling.bilinear import bilinear_pool

from .helpers import locations, naive_matrix, relu_features

SHAPES = {"image": (3, 5, 4, 3), "sequence": (3, 5, 11), "volume": (2, 4, 2, 3, 2), "tokens": (3, 11, 5)}


def pooled(name, *inputs):
    """By a pooling that knows its channels and, if it needs data, has seen these, or others if there are none."""
    part = POOLINGS.make(name, inputs=tuple(Maps(x.shape[1]) for x in inputs))
    if POOLINGS[name].needs_fit:
        seen = inputs if len(inputs[0]) else [relu_features(2, *x.shape[1:], seed=s) for s, x in enumerate(inputs)]
        part.fit(lambda: [seen])
    return formed(part(*inputs))


def case(kind, masked, seed=0):
    features = relu_features(*SHAPES[kind], seed=seed)
    layout = "tokens" if kind == "tokens" else "maps"
    grid = features.shape[1:2] if layout == "tokens" else features.shape[2:]
    mask = torch.rand(len(features), *grid) > 0.4 if masked else None
    return features, layout, mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(("eps", "eps_scale"), [(0.0, "trace"), (1e-2, "trace"), (1.0, "absolute")])
def test_bilinear_is_equation_1(kind, masked, eps, eps_scale):
    features, layout, mask = case(kind, masked)
    A = bilinear_pool(features, eps=eps, eps_scale=eps_scale, layout=layout, mask=mask)
    expected = np.stack([naive_matrix(points, eps, eps_scale) for points in locations(features, layout, mask)])
    np.testing.assert_allclose(A.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_average_is_the_mean(kind, masked):
    features, layout, mask = case(kind, masked)
    expected = np.stack([points.mean(0) for points in locations(features, layout, mask)])
    np.testing.assert_allclose(average_pool(features, layout=layout, mask=mask).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kind", SHAPES)
def test_asymmetric_is_the_mean_outer_product(kind, masked):
    features, layout, mask = case(kind, masked)
    other = relu_features(*SHAPES[kind], seed=1)
    other = other[..., :3] if layout == "tokens" else other[:, :3]
    pairs = zip(locations(features, layout, mask), locations(other, layout, mask), strict=True)
    expected = np.stack([naive_matrix(x, 0.0, "trace", y) for x, y in pairs])
    result = asymmetric_pool(features, other, layout=layout, mask=mask)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("shape", [(2, 3, 6, 4), (2, 3, 12)])
def test_asymmetric_resizes_the_second_to_the_first(shape):
    features = relu_features(*shape)
    grid = tuple(2 * side for side in shape[2:])
    small = relu_features(2, 4, *shape[2:], seed=1)
    large = small
    for axis in range(2, len(shape)):
        large = large.repeat_interleave(2, axis)  # halving it by interpolation gives the small one back
    assert large.shape[2:] == grid
    torch.testing.assert_close(asymmetric_pool(features, large), asymmetric_pool(features, small))


def test_values_under_the_mask_are_never_read():
    features, _layout, mask = case("image", masked=True)
    spoilt = features.masked_fill(~mask[:, None], float("nan")).requires_grad_()
    A = bilinear_pool(spoilt, mask=mask)
    torch.testing.assert_close(A, bilinear_pool(features, mask=mask))
    A.sum().backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad.movedim(1, -1)[~mask] == 0).all()


def test_an_image_without_a_valid_location_is_black():
    features = relu_features(2, 4, 3, 3)
    mask = torch.tensor([True, False])[:, None, None].expand(2, 3, 3)
    black = bilinear_pool(features, mask=mask)[1]
    torch.testing.assert_close(black, bilinear_pool(torch.zeros_like(features))[1])
    torch.testing.assert_close(black, 1e-10 * torch.eye(4, dtype=torch.float64))
    assert (average_pool(features, mask=mask)[1] == 0).all()


@pytest.mark.parametrize("name", POOLINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_are_pooled_in_float32(name, dtype):
    inputs = [relu_features(2, 64, 7, 7, dtype=dtype, seed=s) for s in range(POOLINGS[name].num_inputs)]
    result = pooled(name, *inputs)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, pooled(name, *(x.float() for x in inputs)))


@pytest.mark.parametrize("name", POOLINGS)
def test_autocast_does_not_touch_the_products(name):
    inputs = [relu_features(2, 64, 7, 7, dtype=torch.float32, seed=s) for s in range(POOLINGS[name].num_inputs)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = pooled(name, *inputs)
    assert torch.equal(result, pooled(name, *inputs))


@pytest.mark.parametrize("name", POOLINGS)
def test_an_empty_batch_is_pooled(name):
    inputs = [torch.zeros(0, 64, 7, 7)] * POOLINGS[name].num_inputs
    assert pooled(name, *inputs).shape[0] == 0


def test_relative_eps_follows_the_scale_of_the_features():
    features = relu_features(2, 6, 4, 4)
    torch.testing.assert_close(bilinear_pool(1e3 * features), 1e6 * bilinear_pool(features))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: bilinear_pool(x[0, 0]), r"expected `features` of shape \(B, C, H, W\)"),
        (lambda x: bilinear_pool(x, layout="tokens"), r"expected `features` of shape \(B, N, C\)"),
        (lambda x: bilinear_pool(x[:, :, :0]), "none of C and the locations zero"),
        (lambda x: bilinear_pool(x, layout="token"), "did you mean 'tokens'"),
        (lambda x: bilinear_pool(x, eps=-1.0), "expected `eps` to be a number >= 0"),
        (lambda x: bilinear_pool(x, eps=float("nan")), "expected `eps` to be a number >= 0"),
        (lambda x: bilinear_pool(x, eps_scale="max"), "unknown eps_scale 'max'"),
        (lambda x: bilinear_pool(x, mask=torch.ones(2, 8, 8).bool()), r"shape \(2, 3, 3\).*got torch.bool \(2, 8, 8\)"),
        (lambda x: bilinear_pool(x, mask=torch.ones(2, 3, 3)), "boolean tensor"),
        (lambda x: bilinear_pool(x / 0), "finite `features` and sums.*in 2 of 2 images"),
        (lambda x: asymmetric_pool(x, x[:1]), "two features of the same images"),
        (lambda x: asymmetric_pool(x.flatten(2).mT, x.flatten(2).mT[:, 1:], layout="tokens"), "as many locations"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.ones(2, 4, 3, 3))


def test_integers_and_arrays_are_refused():
    with pytest.raises(TypeError, match="floating-point `features`"):
        bilinear_pool(torch.ones(2, 3, 4, 4, dtype=torch.uint8))
    with pytest.raises(TypeError, match=r"torch\.Tensor"):
        bilinear_pool(np.ones((2, 3, 4, 4)))


def test_public_names():
    assert bcnn.bilinear_pool is bilinear_pool
    assert bcnn.asymmetric_pool is asymmetric_pool
    assert bcnn.average_pool is average_pool
