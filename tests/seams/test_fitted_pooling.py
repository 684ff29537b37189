"""A pooling that is fitted on training images, and on no others."""

import json

import pytest
import torch

import bcnn
from bcnn.parts.fitting import FittedPart
from bcnn.parts.registry import Part
from bcnn.parts.shapes import Vector, expect_maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.average import average_pool
from bcnn.pooling.contract import Pooling
from tests.descriptors.images import dataset_of

from .walk import SHORT, predict, train


class Whitened(Pooling, FittedPart):
    """Means of the channels, each in units of its deviation over the training images."""

    def __init__(self, inputs):
        super().__init__()
        (maps,) = expect_maps("whitened", inputs, 1)
        self.register_buffer("mean", torch.zeros(maps.channels))
        self.register_buffer("deviation", torch.ones(maps.channels))
        self.register_buffer("count", torch.tensor(0))

    def shape(self, *inputs):
        (maps,) = expect_maps("whitened", inputs, 1)
        return Vector(maps.channels)

    def fit(self, batches):
        means = torch.cat([average_pool(features) for (features,) in batches()])
        again = torch.cat([average_pool(features) for (features,) in batches()])
        assert torch.equal(means, again)  # the images come from the start each time
        self.mean.copy_(means.mean(0))
        self.deviation.copy_(means.std(0) + 1e-3)
        self.count.fill_(len(means))
        self.mark_fitted()

    def forward(self, features, *, layout="maps", mask=None):
        self.check_fitted()
        return (average_pool(features, layout=layout, mask=mask) - self.mean) / self.deviation


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setitem(POOLINGS, "whitened", Part(Whitened, "means in units of their deviation"))


def test_fitted_by_hand(pictures):
    assert POOLINGS["whitened"].needs_fit
    torch.manual_seed(0)
    model = bcnn.build_model("average", backbone="tiny", weights=None, size=32, pooling="whitened", normalize=())
    images = torch.rand(2, 3, 32, 32)
    with pytest.raises(ValueError, match=r"Whitened: expected to be fitted on training images first.*bcnn\.fit_parts"):
        model(images)
    samples = dataset_of(pictures).of("train")
    bcnn.fit_parts(model, samples)
    assert model.head.pooling.count == 24
    pixels = torch.stack([model.preprocessing(sample.open()) for sample in samples])
    described = model.describe(pixels)
    torch.testing.assert_close(described.mean(0), torch.zeros(32), atol=1e-4, rtol=0)


def test_frozen(pictures, tmp_path):
    train(pictures, tmp_path / "run", "--pooling", "whitened", "--normalize", "l2")
    assert bcnn.load(tmp_path / "run" / "model.safetensors").head.pooling.count == 24  # all training images
    predict(pictures, tmp_path / "run")


def test_fine_tuned_without_the_images_that_are_held_out(pictures, tmp_path):
    train(pictures, tmp_path / "run", "--pooling", "whitened", "--normalize", "l2", *SHORT)
    assert bcnn.load(tmp_path / "run" / "model.safetensors").head.pooling.count == 18  # a quarter chooses the epoch
    predict(pictures, tmp_path / "run")


def test_a_damaged_or_foreign_file_of_fitted_values_is_made_again(pictures, tmp_path):
    options = ("--pooling", "whitened", "--normalize", "l2")
    first = train(pictures, tmp_path / "run", *options)
    (file,) = (tmp_path / "run" / "descriptors").glob("fitted-*.safetensors")
    whole = file.read_bytes()
    for content in (b"nothing", whole[:-8]):
        file.write_bytes(content)
        assert train(pictures, tmp_path / "run", *options)["accuracy"] == first["accuracy"]
        assert file.read_bytes() == whole
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["accuracy"] == first["accuracy"]


class Watching(Whitened):
    """Notes under which circumstances it is fitted."""

    seen = ()

    def fit(self, batches):
        for _ in batches():
            type(self).seen += (torch.is_autocast_enabled("cpu"),)
        super().fit(batches)


def test_parts_are_fitted_in_full_precision_and_statistics_stay(pictures, monkeypatch):
    from bcnn.descriptors.extract import ExtractOptions

    monkeypatch.setitem(POOLINGS, "watching", Part(Watching, "notes"))
    torch.manual_seed(0)
    model = bcnn.build_model("average", backbone="mobilenet_v2", weights=None, size=32, pooling="watching").train()
    before = {name: value.clone() for name, value in model.backbone.state_dict().items()}
    bcnn.fit_parts(model, dataset_of(pictures).of("train")[:6], ExtractOptions(precision="bf16"))
    assert Watching.seen
    assert not any(Watching.seen)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.backbone.state_dict().items())


def test_one_preset_among_several(pictures):
    from bcnn.runs.config import RunConfig
    from bcnn.runs.networks import networks

    common = {"spec": str(pictures), "backbone": "tiny", "weights": None, "size": 32, "pooling": "whitened"}
    from bcnn.data.spec import load_dataset

    alone = networks(RunConfig(**common, preset=("average",)), load_dataset(str(pictures)))["average"]
    beside = networks(RunConfig(**common, preset=("bcnn", "average")), load_dataset(str(pictures)))["average"]
    for name, value in alone.state_dict().items():
        assert torch.equal(value, beside.state_dict()[name]), name
