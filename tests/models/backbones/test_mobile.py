"""MobileNetV2 and EfficientNet-Lite0 to 2: parameters, strides, TensorFlow's padding."""

import pytest
import torch

from bcnn.models.backbones import make_backbone


@pytest.mark.parametrize(
    ("name", "total"),
    # The published counts, less the classifiers of 1280 x 1000 + 1000.
    [("mobilenet_v2", 3_504_872 - 1_281_000), ("efficientnet_lite0", 4_652_008 - 1_281_000),
     ("efficientnet_lite1", 5_416_680 - 1_281_000), ("efficientnet_lite2", 6_092_072 - 1_281_000)],
)  # fmt: skip
def test_parameters_are_those_published(name, total):
    assert sum(p.numel() for p in make_backbone(name, cut="head").parameters()) == total


@pytest.mark.parametrize(
    ("name", "cut", "channels", "stride"),
    [("mobilenet_v2", "block13", 96, 16), ("mobilenet_v2", "block17", 320, 32), ("mobilenet_v2", "head", 1280, 32),
     ("efficientnet_lite0", "block11", 112, 16), ("efficientnet_lite0", "block16", 320, 32),
     ("efficientnet_lite1", "block15", 112, 16), ("efficientnet_lite1", "block21", 320, 32),
     ("efficientnet_lite2", "block15", 120, 16), ("efficientnet_lite2", "block21", 352, 32)],
)  # fmt: skip
def test_cuts_have_the_documented_channels_and_stride(name, cut, channels, stride):
    with torch.no_grad():
        features = make_backbone(name, cut=cut).eval()(torch.rand(1, 3, 64, 96))
    assert features.shape == (1, channels, 64 // stride, 96 // stride)


@pytest.mark.parametrize("side", [7, 8, 15, 16])
@pytest.mark.parametrize(("stride", "kernel"), [(1, 3), (2, 3), (1, 5), (2, 5)])
def test_same_padding_is_tensorflows(side, stride, kernel):
    from bcnn.models.backbones.mobile import _SameConv2d

    conv = _SameConv2d(2, 3, kernel, stride=stride, groups=1).double()
    x = torch.rand(1, 2, side, side, dtype=torch.float64)
    out = -(-side // stride)
    total = max((out - 1) * stride + kernel - side, 0)
    expected = torch.zeros(1, 3, out, out, dtype=torch.float64)
    for i in range(out):
        for j in range(out):
            for a in range(kernel):
                for b in range(kernel):
                    row, column = i * stride + a - total // 2, j * stride + b - total // 2
                    if 0 <= row < side and 0 <= column < side:
                        expected[0, :, i, j] += conv.weight[:, :, a, b].detach() @ x[0, :, row, column]
    torch.testing.assert_close(conv(x).detach(), expected)


def test_blocks_add_their_input_where_shapes_allow():
    backbone = make_backbone("mobilenet_v2").eval()
    adds = [name for name, block in backbone.layers.named_children() if getattr(block, "adds_input", False)]
    assert adds == [f"block{i}" for i in (3, 5, 6, 8, 9, 10, 12, 13, 15, 16)]
    block = backbone.layers.block3
    for parameter in block.units[-1][1].parameters():
        torch.nn.init.zeros_(parameter)
    x = torch.rand(1, 24, 8, 8)
    torch.testing.assert_close(block(x), x)
