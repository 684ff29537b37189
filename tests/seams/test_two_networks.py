"""A model of two networks."""

import pytest
import torch

import bcnn

from .walk import SHORT, predict, train

BOTH = "tiny,tiny(cut=relu2, proj_dim=5)"


def model(**options):
    torch.manual_seed(0)
    return bcnn.build_model(
        "bcnn", backbone=["tiny", "tiny(cut=relu2, proj_dim=5)"], weights=None, pooling="asymmetric", **options
    )


def test_built():
    network = model(num_classes=3)
    images = torch.rand(2, 3, 32, 32)
    first, second = network.maps(images)
    assert (first.shape[1], second.shape[1]) == (32, 5)
    expected = bcnn.describe([first, second], "bcnn", pooling="asymmetric")
    assert torch.equal(network.describe(images), expected)
    assert expected.shape == (2, 160)
    with pytest.raises(ValueError, match="expected 2 backbones for 'asymmetric' pooling, got tiny"):
        bcnn.build_model("bcnn", backbone="tiny", weights=None, pooling="asymmetric")
    with pytest.raises(ValueError, match="expected 1 backbone for 'bilinear' pooling, got tiny, tiny"):
        bcnn.build_model("bcnn", backbone=["tiny", "tiny"], weights=None)


def test_pixels_are_as_each_network_wants_them():
    from dataclasses import replace

    from bcnn.data.preprocess import Preprocessing
    from bcnn.models.branch import change_pixels

    ours = Preprocessing(size=8)
    theirs = replace(ours, pixel_max=255.0, mean=(120.0, 110.0, 100.0), std=(1.0, 1.0, 1.0))
    pixels = torch.randint(0, 256, (8, 8, 3), dtype=torch.uint8)
    given, wanted = (own.to_values(pixels).movedim(-1, 0) for own in (ours, theirs))
    torch.testing.assert_close(change_pixels(given, ours, theirs), wanted, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--backbone", BOTH, "--pooling", "asymmetric", *more)
    assert metrics["descriptor_length"] == 160
    assert metrics["backbone"] == "tiny+tiny"
    predict(pictures, tmp_path / "run")


def test_weights_of_each_from_a_file_with_both(tmp_path):
    network = model()
    path = str(bcnn.save(network, tmp_path / "m.safetensors"))
    again = bcnn.build_model(
        "bcnn", backbone=["tiny", "tiny(cut=relu2, proj_dim=5)"], weights=path, pooling="asymmetric"
    )
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(again.branches[1].backbone(images), network.branches[1].backbone(images))
    with pytest.raises(ValueError, match=r"expected options by name.*, got 'tiny\(relu1\)'"):
        bcnn.build_model("bcnn", backbone="tiny(relu1)", weights=None)
