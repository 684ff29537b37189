"""Gradients through the whole head, in every precision, at every edge, compiled or not."""

import pytest
import torch
from torch import nn

from bcnn.pooling.head import PAPERS, PRESETS, Head, describe

from .helpers import ABSOLUTE, SMOOTH, images, relu_features, thin_option


@pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])
@pytest.mark.parametrize("preset", PAPERS)
def test_gradient_through_the_whole_head(preset, thin):
    if thin and preset in ("average", "bcnn"):
        with pytest.raises(ValueError, match=r"unknown option of .*: 'thin'"):
            Head(preset, thin=True)
        return
    normalize = [SMOOTH.get(name, name) for name in PRESETS[preset].normalize]
    # An absolute ridge: a black image's own is 1e-10, too sharp for finite differences.
    ridge = {} if preset in ("average", "bcnn") else ABSOLUTE
    options = {"normalize": normalize, **thin_option(preset, thin), **ridge}
    head = Head(preset, **options)
    weight = torch.randn(5, head.length(6), dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 1])

    def loss(features, weight):
        return nn.functional.cross_entropy(3 * head(features) @ weight.mT, labels)

    assert torch.autograd.gradcheck(loss, (images().requires_grad_(), weight))


@pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])
@pytest.mark.parametrize("preset", ["improved_bcnn", "o2p"])
def test_gradient_with_the_relative_ridge(preset, thin):
    head = Head(preset, thin=thin, eps=0.05, normalize=[SMOOTH.get(n, n) for n in PRESETS[preset].normalize])
    features = images()[:2].requires_grad_()
    assert torch.autograd.gradcheck(head, (features,))


@pytest.mark.parametrize("thin", [None, False])
@pytest.mark.parametrize("preset", PAPERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_defaults_stay_finite_at_every_edge(preset, thin, dtype):
    features = relu_features(5, 48, 4, 4, dtype=torch.float32)
    features[1, 3:20] = 0
    features[2] = 0
    features[3] *= 1e6
    features[4] *= 1e-6
    features = features.to(dtype).requires_grad_()
    descriptor = Head(preset, **thin_option(preset, thin))(features)
    descriptor.square().sum().backward()
    assert descriptor.dtype == torch.float32
    assert descriptor.isfinite().all()
    assert features.grad.dtype == dtype
    assert features.grad.isfinite().all()
    assert (features.grad[2] == 0).all() or preset == "average"


@pytest.mark.parametrize("preset", PAPERS)
def test_gradient_of_float32_heads_on_features_with_dead_channels(preset):
    # A signed square root after a root blows up the rounding where zeros should be: the whole head has to be exact.
    features = relu_features(2, 64, 10, 10, dtype=torch.float32) * torch.logspace(0, -1.5, 64)[:, None, None]
    features[:, ::5] = 0
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = features.detach().to(dtype, copy=True).requires_grad_()
        descriptors = Head(preset, **thin_option(preset, False))(leaf)
        weight = torch.arange(descriptors.shape[1], dtype=dtype).sin()
        (descriptors @ weight).sum().backward()
        gradients.append(leaf.grad.double())
    assert (gradients[0] - gradients[1]).norm() < 3e-4 * gradients[1].norm()
    live = features > 0
    assert ((gradients[0] - gradients[1]) * live).norm() < 3e-4 * (gradients[1] * live).norm()


def test_training_through_autocast_matches_training_without():
    features = relu_features(2, 32, 3, 3, dtype=torch.float32)
    gradients = []
    for enabled in (True, False):
        leaf = features.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            describe(leaf)[:, 5].sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("preset", PAPERS)
def test_compiles_forward_and_backward(preset):
    features = relu_features(2, 8, 2, 2, dtype=torch.float32)
    head = Head(preset)  # without the compiler this would be thin
    results = []
    for call in (torch.compile(head, backend="aot_eager"), Head(preset, **thin_option(preset, False))):
        leaf = features.clone().requires_grad_()
        descriptors = call(leaf)
        descriptors[:, 1].sum().backward()
        results.append((descriptors, leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", PAPERS)
@pytest.mark.parametrize("side", [2, 7], ids=["thin", "full"])
def test_the_compiler_takes_a_head_whole(preset, side):
    head, features = Head(preset), relu_features(2, 8, side, side, dtype=torch.float32)
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), head(features), rtol=1e-3, atol=1e-4)
    exported = torch.export.export(head, (features,), strict=True)
    torch.testing.assert_close(exported.module()(features), head(features), rtol=1e-3, atol=1e-4)


def test_vmap_over_images():
    features = relu_features(3, 8, 2, 2)
    for preset in PAPERS:
        head = Head(preset)
        result = torch.func.vmap(lambda x, head=head: head(x[None])[0])(features)
        torch.testing.assert_close(result, head(features))
