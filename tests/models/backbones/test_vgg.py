"""VGG-D and VGG-M are those of the paper and its citations."""

import numpy as np
import pytest
import torch

from bcnn.models.backbones import make_backbone


def test_vgg16_is_configuration_d():
    backbone = make_backbone("vgg16", cut="pool5")
    widths = [m.out_channels for m in backbone.layers if isinstance(m, torch.nn.Conv2d)]
    assert widths == [64] * 2 + [128] * 2 + [256] * 3 + [512] * 6
    assert sum(p.numel() for p in backbone.parameters()) == 14_714_688
    assert list(backbone.layers._modules)[-2:] == ["relu5_3", "pool5"]


@pytest.mark.parametrize(("name", "side"), [("vgg16", 28), ("vgg_m", 27), ("alexnet", 27)])
def test_448_pixels_give_the_papers_grid(name, side):
    with torch.device("meta"):
        backbone = make_backbone(name)
    assert backbone.to("meta")(torch.empty(1, 3, 448, 448, device="meta")).shape[2:] == (side, side)


def test_vgg_m_has_the_parameters_of_cnn_m():
    shapes = {n: tuple(p.shape) for n, p in make_backbone("vgg_m").layers.named_parameters() if n.endswith("weight")}
    assert shapes == {"conv1.weight": (96, 3, 7, 7), "conv2.weight": (256, 96, 5, 5), "conv3.weight": (512, 256, 3, 3),
                      "conv4.weight": (512, 512, 3, 3), "conv5.weight": (512, 512, 3, 3)}  # fmt: skip


def test_response_normalization_is_matconvnets():
    x = torch.rand(1, 12, 2, 2, dtype=torch.float64) * 30
    result = make_backbone("vgg_m").layers.norm1(x)
    N, kappa, alpha, beta = 5, 2.0, 1e-4, 0.75
    expected = np.empty(x.shape)
    for c in range(12):
        window = x[:, max(0, c - N // 2) : c + N // 2 + 1].square().sum(1).numpy()
        expected[:, c] = x[:, c].numpy() / (kappa + alpha * window) ** beta
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-12)


def test_second_maximum_pads_at_the_end():
    x = torch.rand(1, 1, 54, 54)
    pooled = make_backbone("vgg_m").layers.pool2(x)
    padded = torch.nn.functional.pad(x, (0, 1, 0, 1), value=-torch.inf)
    assert torch.equal(pooled, torch.nn.functional.max_pool2d(padded, 3, stride=2))
