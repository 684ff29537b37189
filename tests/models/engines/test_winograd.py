"""Winograd's convolutions against direct ones in float64, and what they leave to torch."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, max_pool2d

from bcnn.models.engines import winograd
from bcnn.models.engines.winograd import Convolution, applies_to, matrices, transform_kernels

# Errors of float32: direct convolutions have 1e-7 to 1e-6 in these measures. Winograd's have some ten times as much,
# because transforms multiply by numbers up to 25 and cancel; a wrong formula has 1.
TOGETHER = 1e-5  # the norm of all errors over that of the numbers
EACH = 1e-4  # the largest error over the largest number

SHAPES = {
    "whole tiles": (2, 64, 16, 12),
    "odd sides": (3, 64, 13, 27),
    "one pixel": (1, 64, 1, 1),
    "several strips": (1, 128, 60, 45),
    "several images in a strip": (9, 64, 9, 8),
    "few channels": (2, 3, 10, 11),
    "no images": (0, 64, 8, 8),
}


def made(conv: nn.Conv2d, *, relu: bool = False, pool: bool = False) -> Convolution:
    bias = None if conv.bias is None else conv.bias.detach()
    return Convolution(transform_kernels(conv.weight.detach()), bias, conv.kernel_size[0], conv.padding, relu, pool)


def exact(conv: nn.Conv2d, maps: torch.Tensor) -> torch.Tensor:
    bias = None if conv.bias is None else conv.bias.detach().double()
    return conv2d(maps.double(), conv.weight.detach().double(), bias, padding=conv.padding)


def close(result: torch.Tensor, expected: torch.Tensor) -> bool:
    if result.shape != expected.shape or not expected.numel():
        return result.shape == expected.shape
    errors = (result - expected).abs()
    return bool(errors.norm() <= TOGETHER * expected.norm() and errors.max() <= EACH * expected.abs().max())


@pytest.mark.parametrize("r", winograd.KERNELS)
def test_matrices_are_exact_for_whole_numbers(r):
    """In fractions, the transforms of one dimension give the sums of products themselves."""
    A_t, G, B_t = ([[Fraction(float(x)).limit_denominator(1000) for x in row] for row in M] for M in matrices(r))
    d, g = [Fraction(x) for x in (3, -1, 4, 1, -5, 9)], [Fraction(x) for x in (2, 7, -1, 8, -2)[:r]]

    def times(M, v):
        return [sum(a * b for a, b in zip(row, v, strict=True)) for row in M]

    found = times(A_t, [a * b for a, b in zip(times(G, g), times(B_t, d), strict=True)])
    assert found == [sum(d[i + k] * g[k] for k in range(r)) for i in range(7 - r)]
    np.testing.assert_allclose(matrices(r)[1], np.array(G, dtype=float), rtol=1e-15)


@pytest.mark.parametrize("padding", [0, 1, 2, (2, 0), 7])
@pytest.mark.parametrize("r", winograd.KERNELS)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_agrees_with_direct_convolution(shape, r, padding):
    torch.manual_seed(0)
    conv, maps = nn.Conv2d(shape[1], 70, r, padding=padding), torch.randn(shape)
    expected = exact(conv, maps) if min(s + 2 * p - r for s, p in zip(shape[2:], conv.padding, strict=True)) >= 0 else 0
    if isinstance(expected, int):
        with pytest.raises(ValueError, match=f"kernels of {r} x {r} fit into"):
            made(conv)(maps)
        return
    assert close(made(conv)(maps), expected)
    assert close(made(conv, relu=True)(maps), expected.relu())
    if min(expected.shape[2:]) > 1:
        assert close(made(conv, relu=True, pool=True)(maps), max_pool2d(expected.relu(), 2))
        assert close(made(conv, pool=True)(maps), max_pool2d(expected, 2))


def test_any_layout_and_no_bias():
    torch.manual_seed(0)
    conv, wide = nn.Conv2d(64, 64, 3, padding=1, bias=False), torch.randn(2, 80, 20, 31)
    maps = wide[:, 8:72, ::2, 1:].transpose(2, 3)
    before = wide.clone()
    for own in (maps, maps.contiguous(), maps.contiguous(memory_format=torch.channels_last)):
        result = made(conv)(own)
        assert close(result, exact(conv, maps))
        assert result.stride(1) == 1  # channels last
    assert torch.equal(wide, before)


def test_nan_stays_nan():
    conv, maps = nn.Conv2d(64, 64, 3, padding=1), torch.zeros(1, 64, 8, 8)
    maps[0, 5, 4, 4] = torch.nan
    assert made(conv, relu=True)(maps)[0, :, 3:6, 3:6].isnan().all()
    assert made(conv, relu=True, pool=True)(maps)[0, :, 2, 2].isnan().all()


@pytest.mark.parametrize(
    "other",
    [
        {"stride": 2}, {"groups": 2}, {"dilation": 2}, {"kernel_size": 1}, {"kernel_size": 7}, {"kernel_size": (3, 5)},
        {"padding_mode": "reflect", "padding": 1}, {"padding": "same"}, {"in_channels": 32}, {"out_channels": 32},
    ],
    ids=str,
)  # fmt: skip
def test_other_convolutions_are_left_to_torch(other):
    usual = {"in_channels": 64, "out_channels": 64, "kernel_size": 3}
    assert applies_to(nn.Conv2d(**usual))
    layers = nn.Sequential(nn.Conv2d(**(usual | other)))
    assert not applies_to(layers[0])
    maps = torch.randn(1, (usual | other)["in_channels"], 12, 12)
    with torch.no_grad():
        assert torch.equal(winograd.run(layers, maps), layers(maps))


def network() -> nn.Sequential:
    """Every kind of step: left to torch, with and without relu and pooling, pooling of other kinds."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, stride=2),
        nn.Conv2d(64, 80, 5, padding=2), nn.MaxPool2d(3, stride=2),
        nn.Conv2d(80, 64, 3), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, stride=2, ceil_mode=True),
        nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(),
    ).eval()  # fmt: skip


@torch.inference_mode()
def test_a_network_is_the_same_network():
    layers, images = network(), torch.randn(5, 3, 50, 43)
    expected = layers.double()(images.double())
    result = winograd.run(layers.float(), images)
    assert close(result, expected)
    assert torch.equal(winograd.run(layers, images), result)
    assert not torch.equal(layers(images), result)  # it was computed in another way


@torch.no_grad()
def test_threads_do_not_change_a_bit():
    """Every image is computed by one thread as long as there are as many images."""
    layers, images, before = network(), torch.randn(4, 3, 40, 40), torch.get_num_threads()
    results = []
    try:
        for threads in (2, 1, 2):
            torch.set_num_threads(threads)
            results.append(winograd.run(layers, images).clone())
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[2])
    assert close(results[0], results[1].double())


@torch.no_grad()
def test_results_are_not_overwritten_by_the_next():
    layers = network()
    first = winograd.run(layers, torch.randn(2, 3, 40, 40))
    kept = first.clone()
    winograd.run(layers, torch.randn(2, 3, 40, 40))
    assert torch.equal(first, kept)


@torch.no_grad()
def test_changed_weights_are_seen():
    layers, images = network(), torch.randn(1, 3, 30, 30)
    winograd.run(layers, images)
    layers[-2].weight.mul_(2)
    assert close(winograd.run(layers, images), layers.double()(images.double()))
    layers.float().load_state_dict({name: value / 2 for name, value in layers.state_dict().items()})
    assert close(winograd.run(layers, images), layers.double()(images.double()))


@torch.no_grad()
def test_hooks_are_heard():
    layers, images, heard = network(), torch.randn(1, 3, 30, 30), []
    layers[3].register_forward_hook(lambda module, inputs, output: heard.append(output))
    result = winograd.run(layers, images)
    assert len(heard) == 1
    assert close(result, layers.double()(images.double()))


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_numbers_are_left_to_torch(kind):
    layers, images = network().to(kind), torch.randn(1, 3, 24, 24, dtype=kind)
    with torch.inference_mode():
        assert torch.equal(winograd.run(layers, images), layers(images))


def test_autocast_is_left_to_torch():
    layers, images = network(), torch.randn(1, 3, 24, 24)
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(winograd.run(layers, images), layers(images))
