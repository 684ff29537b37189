"""The network: built by name, trained through, saved and loaded, wrong files refused."""

import json
from dataclasses import asdict, replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import bcnn
from bcnn.models import files
from bcnn.models.bcnn import ModelConfig
from bcnn.models.weights import WEIGHTS, cache, store
from bcnn.pooling import POOLINGS
from bcnn.pooling.head import PRESETS

from .weights.files import random_tensors, write_matconvnet

# Those whose parts need not see training images first.
UNFITTED = [name for name, head in PRESETS.items() if not POOLINGS[POOLINGS.read(head.pooling).name].needs_fit]
IMAGES = torch.rand(3, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def tiny(preset="improved_bcnn", **options):
    torch.manual_seed(0)
    return bcnn.build_model(preset, **{"backbone": "tiny", "num_classes": 4, "weights": None, **options})


@pytest.mark.parametrize("preset", UNFITTED)
def test_every_preset_trains_end_to_end(preset):
    model = tiny(preset).train()
    labels = torch.tensor([0, 1, 2])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    losses = []
    for _ in range(12):
        loss = nn.functional.cross_entropy(model(IMAGES), labels)
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] - 0.05


def test_parts_and_widths():
    model = tiny(proj_dim=8)
    assert model.maps(IMAGES)[0].shape == (3, 8, 8, 8)
    assert model.describe(IMAGES).shape == (3, 36) == (3, model.descriptor_length)
    assert model(IMAGES).shape == (3, 4)
    assert tiny(num_classes=None)(IMAGES).shape == (3, 32 * 33 // 2)
    assert tiny(triangle=False).descriptor_length == 1024
    assert tiny(cut="relu2").descriptor_length == 16 * 17 // 2
    assert not model.training


@pytest.mark.parametrize(("old", "new"), [("layer", "cut"), ("image_size", "size"), ("frozen_until", "freeze_until")])
def test_old_names_are_told_the_new_ones(old, new):
    with pytest.raises(TypeError, match=f"build_model: `{old}` is called `{new}` now"):
        tiny(**{old: "relu2"})


def test_an_unknown_option_is_told_all_options():
    with pytest.raises(ValueError, match="unknown option 'proj_dims'; did you mean 'proj_dim'") as raised:
        tiny(proj_dims=3)
    for option in ("backbone", "cut", "scorer", "pooling", "eps", "num_iters"):
        assert f", {option}," in str(raised.value)
    with pytest.raises(ValueError, match="unknown option 'eps'"):  # a pooling that has none
        tiny("average", eps=1)


def test_the_papers_network_has_the_papers_shape():
    with torch.device("meta"):
        model = bcnn.build_model("improved_bcnn", backbone="vgg16", num_classes=200, weights=None, triangle=False)
    assert model.scorer.weight.shape == (200, 512 * 512)
    assert model.config.branches[0].cut == "relu5_3"
    assert model.config.preprocessing.size == 448


def test_descriptor_is_backbone_then_head():
    model = tiny("o2p", eps=0.1)
    torch.testing.assert_close(model.describe(IMAGES), bcnn.describe(model.backbone(IMAGES), "o2p", eps=0.1))


def test_freezing_until_a_layer():
    model = tiny(freeze_until="relu2")
    frozen = [name for name, p in model.named_parameters() if not p.requires_grad]
    assert frozen == [f"branches.0.backbone.layers.conv{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")]


def test_a_classifier_of_ones_own_is_used():
    model = tiny()
    model.scorer = nn.Sequential(nn.Dropout(0.5), nn.Linear(model.descriptor_length, 7, bias=False)).eval()
    torch.testing.assert_close(model(IMAGES), model.describe(IMAGES) @ model.scorer[1].weight.mT)
    calls = []
    model.scorer.register_forward_hook(lambda *_: calls.append(1))
    model(IMAGES)
    assert calls == [1]


def test_bfloat16_and_autocast_leave_the_descriptor_in_float32():
    exact = tiny()
    half = tiny().bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = tiny()
        results = [(half.describe(IMAGES.bfloat16()), half(IMAGES.bfloat16())), (cast.describe(IMAGES), cast(IMAGES))]
    for descriptors, scores in results:
        assert descriptors.dtype == torch.float32
        assert (descriptors * exact.describe(IMAGES)).sum(-1).min() > 0.999
        torch.testing.assert_close(scores.float(), exact(IMAGES), rtol=0, atol=2e-2)
    assert results[0][1].dtype == torch.bfloat16  # the classifier's own
    assert results[1][1].dtype == torch.float32
    half(IMAGES.bfloat16()).sum().backward()
    assert all(p.grad.dtype == torch.bfloat16 and p.grad.isfinite().all() for p in half.parameters())


def test_weights_reach_the_backbone(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    tensors = random_tensors("vgg_m")
    write_matconvnet(tmp_path / "imagenet-vgg-m.mat", tensors, average=np.array([[[100.0, 110.0, 120.0]]]))
    store.import_file(tmp_path / "imagenet-vgg-m.mat")
    model = bcnn.build_model("bcnn", backbone="vgg_m", cut="relu3")
    assert torch.equal(model.backbone.layers.conv3.weight, tensors["conv3.weight"])
    assert model.config.branches[0].weights == "vgg_m_matconvnet"
    assert model.config.preprocessing.mean == (100.0, 110.0, 120.0)
    assert model.config.preprocessing.pixel_max == 255
    smaller = bcnn.build_model("bcnn", backbone="vgg_m", weights="vgg_m_matconvnet", size=224)
    assert smaller.config.preprocessing.size == 224
    with pytest.raises(ValueError, match="expected weights for 'alexnet', got 'vgg_m_matconvnet', which are for"):
        bcnn.build_model("bcnn", backbone="alexnet", weights="vgg_m_matconvnet")
    path = bcnn.save(model, tmp_path / "m.safetensors")
    assert bcnn.load(path).config == model.config


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "bcn"}, "unknown preset 'bcn'; did you mean 'bcnn'"),
        ({"backbone": "vgg19"}, "unknown backbone 'vgg19'"),
        ({"cut": "relu7"}, "unknown layer 'relu7'"),
        ({"num_classes": 0}, "expected `num_classes` to be a whole number >= 1"),
        ({"proj_dim": 2.5}, "expected `proj_dim`"),
        ({"freeze_until": "conv9"}, "layer to freeze until 'conv9'"),
        ({"pooling": "asymmetric", "normalize": "l2"}, "expected 2 backbones for 'asymmetric' pooling, got tiny"),
        ({"layout": "tokens"}, "expected layout 'maps'"),
        ({"normalise": "l2"}, "did you mean 'normalize'"),
        ({"weights": "vgg16_imagenet"}, "expected weights for 'tiny'"),
        ({"weights": "imagenet"}, "unknown name 'imagenet'"),
        ({"weights": "imagenet-vgg-m.mat"}, r"run first: bcnn weights import imagenet-vgg-m\.mat"),
    ],
)
def test_bad_arguments_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        tiny(**options)


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", UNFITTED)
def test_saved_and_loaded_it_gives_the_same_scores(preset, tmp_path):
    model = tiny(preset, freeze_until="conv1", proj_dim=6)
    path = bcnn.save(model, tmp_path / "new" / "model.safetensors", notes={"classes": ["a", "b", "c", "d"]})
    again = bcnn.load(path)
    assert again.config == model.config
    assert torch.equal(again(IMAGES), model(IMAGES))
    assert not again.training
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]
    assert bcnn.read_notes(path) == {"classes": ["a", "b", "c", "d"]}
    assert [p.name for p in path.parent.iterdir()] == ["model.safetensors"]


def test_a_learned_exponent_and_options_survive(tmp_path):
    model = tiny(normalize=("matrix_power(0.4, learnable=True)", "signed_sqrt(1e-2)", "l2"), eps=0.3)
    with torch.no_grad():
        model.head.normalizations[0].p.fill_(0.7)
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    assert again.head.normalizations[0].p.item() == pytest.approx(0.7)
    assert again.config.head.pooling == "bilinear(eps=0.3)"
    assert torch.equal(again(IMAGES), model(IMAGES))


def test_what_was_changed_since_building_is_saved(tmp_path):
    model = tiny()
    model.head = bcnn.Head("bcnn")
    model.reset_scorer(10)
    model.backbone.freeze_until("relu2")
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    assert torch.equal(again(IMAGES), model(IMAGES))
    assert again.config.num_classes == 10
    assert again.config.branches[0].freeze_until == "relu2"
    assert [p.requires_grad for p in again.parameters()] == [p.requires_grad for p in model.parameters()]


def test_what_could_not_be_loaded_is_not_saved(tmp_path):
    path = tmp_path / "m.safetensors"
    model = tiny()
    model.scorer = nn.Sequential(nn.Linear(model.descriptor_length, 4))
    with pytest.raises(ValueError, match=r"that bcnn\.load can build again .* got scorer\.weight missing"):
        bcnn.save(model, path)
    model = tiny()
    model.scorer = nn.Linear(model.descriptor_length, 4)
    with pytest.raises(ValueError, match=r"got Linear instead of LinearScorer at scorer"):
        bcnn.save(model, path)
    changes = {
        "branches.0.backbone.layers.relu3": nn.GELU(),
        "branches.0.projection": nn.Tanh(),
        "head.normalizations.1": bcnn.SignedSqrt(1e-2),
    }
    for name, part in changes.items():
        model = tiny()
        parent, _, last = name.rpartition(".")
        model.get_submodule(parent)._modules[last] = part
        with pytest.raises(ValueError, match=rf"got {type(part).__name__}.* instead of .* at {name}"):
            bcnn.save(model, path)
    assert not path.exists()


def test_loading_leaves_random_numbers_alone(tmp_path):
    path = bcnn.save(tiny(), tmp_path / "m.safetensors")
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    bcnn.load(path)
    assert torch.equal(torch.rand(3), expected)


def test_the_header_is_plain_json(tmp_path):
    path = bcnn.save(tiny(), tmp_path / "m.safetensors")
    content = path.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    assert header["format"] == "bcnn-model"
    assert header["version"] == "2"
    config = json.loads(header["config"])
    assert config["branches"][0]["backbone"] == "tiny"
    assert config["head"]["normalize"] == ["matrix_sqrt", "signed_sqrt", "l2"]
    assert files.model_config(config) == tiny().config


def rewritten(path, *, metadata=None, tensors=None):
    """The same file with another header or other tensors, and no checksum."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        about = {key: value for key, value in file.metadata().items() if key != "crc32"}
    save_file(load_file(path) if tensors is None else tensors, path, metadata={**about, **(metadata or {})})
    return path


def test_wrong_files_are_refused_with_the_reason(tmp_path):
    good = tiny()
    path = tmp_path / "m.safetensors"
    with pytest.raises(FileNotFoundError, match="which is not there"):
        bcnn.load(path)
    path.write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"expected a safetensors file written by bcnn\.save"):
        bcnn.load(path)
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(ValueError, match="got another safetensors file"):
        bcnn.load(path)
    with pytest.raises(ValueError, match=r"format version 2 or older, got '3'.*install a newer bcnn"):
        bcnn.load(rewritten(bcnn.save(good, path), metadata={"version": "3"}))
    config = asdict(good.config)
    with pytest.raises(ValueError, match="unknown field 'depth' in ModelConfig"):
        bcnn.load(rewritten(bcnn.save(good, path), metadata={"config": json.dumps({**config, "depth": 3})}))
    with pytest.raises(ValueError, match="expected a configuration that this version knows"):
        bcnn.load(rewritten(bcnn.save(good, path), metadata={"config": "{"}))
    tensors = load_file(bcnn.save(good, path))
    missing = {name: value for name, value in tensors.items() if name != "scorer.bias"}
    with pytest.raises(ValueError, match=r"got scorer\.bias missing"):
        bcnn.load(rewritten(bcnn.save(good, path), tensors=missing))
    wrong = {**tensors, "scorer.bias": torch.zeros(9)}
    with pytest.raises(ValueError, match=r"scorer\.bias of shape \(9,\) instead of \(4,\)"):
        bcnn.load(rewritten(bcnn.save(good, path), tensors=wrong))


def test_only_our_networks_are_saved():
    with pytest.raises(TypeError, match=r"made by bcnn\.build_model, got Linear; .* pass its `module`"):
        bcnn.save(nn.Linear(2, 2), "x.safetensors")


def test_numpys_numbers_are_numbers(tmp_path):
    import numpy as np

    model = tiny(num_classes=np.int64(3), proj_dim=np.int32(5), eps=np.float32(0.01))
    assert bcnn.load(bcnn.save(model, tmp_path / "m.safetensors")).config == model.config
    with pytest.raises(TypeError, match="expected `backbone` to be a name"):
        tiny(backbone=None)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = bcnn.save(tiny(), tmp_path / "m.safetensors")
    before = path.read_bytes()

    def fail(_tensors, target, **_):
        target.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        bcnn.save(tiny("bcnn"), path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


def test_weights_of_another_network(tmp_path):
    path = str(bcnn.save(bcnn.build_model("bcnn", backbone="tiny", weights=None, size=96), tmp_path / "m.safetensors"))
    model = bcnn.build_model("improved_bcnn", backbone="tiny", weights=path, num_classes=4, cut="relu2")
    for name, value in bcnn.load(path).backbone.state_dict().items():
        assert "3" in name or torch.equal(model.backbone.state_dict()[name], value)
    assert model.config.preprocessing.size == 96
    assert model.config.branches[0].weights == path
    assert bcnn.build_model("bcnn", backbone="tiny", weights=path, size=64).config.preprocessing.size == 64
    with pytest.raises(ValueError, match=r"expected a network with 'alexnet' in .*, got 'tiny'"):
        bcnn.build_model("bcnn", backbone="alexnet", weights=path)
    short = str(bcnn.save(model, tmp_path / "short.safetensors"))
    with pytest.raises(ValueError, match=r"layers.conv3.weight and 1 more in .*, got a network cut at 'relu2'"):
        bcnn.build_model("bcnn", backbone="tiny", weights=short)
    with pytest.raises(FileNotFoundError, match=r"nothing\.safetensors"):
        bcnn.build_model("bcnn", backbone="tiny", weights="nothing.safetensors")


def test_config_is_frozen_data():
    config = tiny().config
    assert isinstance(config, ModelConfig)
    assert replace(config, num_classes=9) != config
    assert WEIGHTS["vgg16_imagenet"].preprocessing.mean == (0.485, 0.456, 0.406)
