"""Input of a step: the right pixels and maps, in the right order, mirrored where they should be."""

import pytest
import torch

from bcnn.data.contract import TRAIN
from bcnn.descriptors.extract import ExtractOptions
from bcnn.descriptors.team import Team
from bcnn.finetune.source import Pixels, Stage, StoredMaps, store_maps
from bcnn.progress import silent
from tests.finetune.tasks import pictures, small_network

ITEMS = [(3, False), (0, True), (0, False), (5, True), (3, True)]


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    return pictures(tmp_path_factory.mktemp("pictures")).of(TRAIN)


def expected(samples, preprocessing):
    views = [preprocessing(samples[number].open()) for number, _ in ITEMS]
    return torch.stack([view.flip(-1) if mirrored else view for view, (_, mirrored) in zip(views, ITEMS, strict=True)])


@pytest.mark.parametrize("memory_gb", [0.0, 7e-6, 1.0], ids=["none kept", "two kept", "all kept"])
def test_pixels(samples, memory_gb):
    preprocessing = small_network().config.preprocessing
    source = Pixels(samples, preprocessing, ExtractOptions(batch=2), memory_gb)
    for _ in range(2):  # the second time some of them are there
        parts = list(source.batches(ITEMS, [2, 2, 1]))
        assert [len(part) for part in parts] == [2, 2, 1]
        torch.testing.assert_close(torch.cat(parts), expected(samples, preprocessing), rtol=0, atol=1e-6)


def test_memory_is_bounded(samples):
    source = Pixels(samples, small_network().config.preprocessing, ExtractOptions(), 2 * 32 * 32 * 3 / 1e9)
    list(source.batches(ITEMS, [5]))
    assert len(source._kept) == 2


@pytest.mark.parametrize("layer", ["conv1", "relu2", "relu3"])
def test_stored_maps(samples, tmp_path, layer):
    dataset = pictures(tmp_path / "pictures")
    model = small_network().eval()
    samples = dataset.of(TRAIN)
    options = ExtractOptions(batch=4, chunk=5)
    shape = store_maps(model, dataset, layer, tmp_path / "maps", options, team=Team(), progress=silent)
    source = StoredMaps(tmp_path / "maps", [s.name for s in samples], shape, "cpu")
    maps = torch.cat(list(source.batches(ITEMS, [3, 2])))
    with torch.no_grad():
        images = expected(samples, model.config.preprocessing)
        torch.testing.assert_close(maps, Stage(model, layer).maps(images), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(model.backbone.after(layer, maps), model.backbone(images), rtol=1e-5, atol=1e-6)


def test_an_unknown_layer_is_refused():
    with pytest.raises(ValueError, match="layer 'conv9'"):
        small_network().backbone.after("conv9", torch.zeros(1, 3, 4, 4))
