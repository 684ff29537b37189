"""Readers of foreign files, on files made here in the real structure; nothing in them is ever executed."""

import os
import pickle

import numpy as np
import pytest
import torch

from bcnn.data.preprocess import Preprocessing
from bcnn.models.weights import formats
from bcnn.models.weights.matconvnet import matconvnet

from .files import random_tensors, write_flax, write_matconvnet, write_torchvision

PLAIN = Preprocessing()


def assert_same(result, expected):
    assert list(result) == list(expected)
    for name, value in expected.items():
        assert torch.equal(result[name], value), name


def test_flax_pickle(tmp_path):
    tensors = random_tensors("alexnet")
    write_flax(tmp_path / "alexnet.ckpt", tensors, "AlexNet_0")
    imported = formats.flax_pickle(tmp_path / "alexnet.ckpt", "alexnet", PLAIN)
    assert_same(imported.tensors, tensors)
    assert imported.preprocessing == PLAIN


def test_flax_pickle_with_the_old_name_of_numpys_core(tmp_path):
    write_flax(tmp_path / "a.ckpt", random_tensors("alexnet"), "AlexNet_0")
    new = (tmp_path / "a.ckpt").read_bytes()
    # A short name has its length in front: numpy._core.multiarray has 22 letters, numpy.core.multiarray 21.
    old = new.replace(b"\x16numpy._core.multiarray", b"\x15numpy.core.multiarray")
    assert b"numpy.core.multiarray" in old  # NumPy 1 writes it by itself
    content = pickle.loads(old)  # still a pickle
    assert set(content) == {"AlexNet_0", "NetLinLayer_0"}
    # Without its frame, whose length has changed.
    (tmp_path / "old.ckpt").write_bytes(new if old == new else pickle.PROTO + bytes([4]) + old[11:])
    assert_same(formats.flax_pickle(tmp_path / "old.ckpt", "alexnet", PLAIN).tensors, random_tensors("alexnet"))


class Harmful:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_harmful_pickle_is_refused_unexecuted(tmp_path):
    path, trace = tmp_path / "harm.ckpt", tmp_path / "trace"
    path.write_bytes(pickle.dumps({"VGG16_0": Harmful(trace)}))
    with pytest.raises(ValueError, match=r"harm\.ckpt: expected a pickle of convolution arrays, got .*mkdir"):
        formats.flax_pickle(path, "vgg16", PLAIN)
    assert not trace.exists()
    torch.save({"features.0.weight": Harmful(trace)}, tmp_path / "harm.pth")
    with pytest.raises(ValueError, match=r"harm\.pth: expected a PyTorch file of tensors alone"):
        formats.state_dict(tmp_path / "harm.pth", "vgg16", PLAIN)
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"garbage", pickle.dumps([1, 2]), pickle.dumps({"VGG16_0": {"Conv_1": 3}})])
def test_other_pickles_are_refused_with_the_reason(tmp_path, content):
    (tmp_path / "x.ckpt").write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.ckpt: expected a pickle of convolution arrays"):
        formats.flax_pickle(tmp_path / "x.ckpt", "vgg16", PLAIN)


def test_torchvision_state_dict(tmp_path):
    tensors = random_tensors("alexnet")
    write_torchvision(tmp_path / "alexnet.pth", tensors)
    assert_same(formats.state_dict(tmp_path / "alexnet.pth", "alexnet", PLAIN).tensors, tensors)


def test_batch_counters_are_left_out(tmp_path):
    tensors = random_tensors("mobilenet_v2")
    state = {}
    for name, value in tensors.items():
        state[f"features.{name}"] = value
        if name.endswith("running_var"):
            state[f"features.{name}".replace("running_var", "num_batches_tracked")] = torch.tensor(7)
    torch.save(state, tmp_path / "m.pth")
    assert_same(formats.state_dict(tmp_path / "m.pth", "mobilenet_v2", PLAIN).tensors, tensors)


def test_another_network_is_named(tmp_path):
    write_torchvision(tmp_path / "a.pth", random_tensors("alexnet"))
    with pytest.raises(ValueError, match=r"expected 26 tensors for vgg16, got 11"):
        formats.state_dict(tmp_path / "a.pth", "vgg16", PLAIN)
    with pytest.raises(ValueError, match=r"conv1\.weight of shape \(96, 3, 7, 7\) for vgg_m, got features\.1\.weight"):
        formats.state_dict(tmp_path / "a.pth", "vgg_m", PLAIN)
    torch.save([torch.zeros(3)], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="expected a state dict, got list"):
        formats.state_dict(tmp_path / "list.pth", "vgg16", PLAIN)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_matconvnet_vgg_m(tmp_path, old, wrapped):
    tensors = random_tensors("vgg_m")
    average = np.random.default_rng(0).uniform(90, 130, (224, 224, 3)).astype(np.float32)
    path = tmp_path / "imagenet-vgg-m.mat"
    write_matconvnet(path, tensors, average=average, old=old, wrapped=wrapped)
    imported = matconvnet(path, "vgg_m", Preprocessing(pixel_max=255.0, std=(1.0, 1.0, 1.0)))
    assert_same(imported.tensors, tensors)
    np.testing.assert_allclose(imported.preprocessing.mean, average.mean((0, 1)), rtol=1e-5)
    assert imported.preprocessing.pixel_max == 255
    assert imported.preprocessing.std == (1.0, 1.0, 1.0)


@pytest.mark.slow
def test_matconvnet_vgg16_with_a_mean_colour(tmp_path):
    tensors = random_tensors("vgg16")
    path = tmp_path / "imagenet-vgg-verydeep-16.mat"
    write_matconvnet(path, tensors, average=np.array([[[123.68, 116.779, 103.939]]]))
    imported = matconvnet(path, "vgg16", PLAIN)
    assert_same(imported.tensors, tensors)
    np.testing.assert_allclose(imported.preprocessing.mean, [123.68, 116.779, 103.939], rtol=1e-6)


def test_wrong_mat_files_are_refused_with_the_reason(tmp_path):
    path = tmp_path / "x.mat"
    path.write_bytes(b"MATLAB nonsense")
    with pytest.raises(ValueError, match=r"x\.mat: expected a MatConvNet \.mat file"):
        matconvnet(path, "vgg_m", PLAIN)
    import scipy.io

    scipy.io.savemat(path, {"a": 1})
    with pytest.raises(ValueError, match=r"expected `layers` and `meta\.normalization\.averageImage`"):
        matconvnet(path, "vgg_m", PLAIN)
    write_matconvnet(path, random_tensors("vgg_m"), average=np.zeros(3), lrn=(5, 1, 2e-5, 0.75))
    with pytest.raises(
        ValueError, match=r"expected norm1 of vgg_m to be lrn \[5 2 0\.0001 0\.75\], got lrn \[5 1 2e-05 0\.75\]"
    ):
        matconvnet(path, "vgg_m", PLAIN)
    write_matconvnet(path, random_tensors("vgg_m"), average=np.zeros(3), conv2_stride=1)
    with pytest.raises(ValueError, match="expected conv2 of vgg_m to be conv stride 2 pad 1, got conv stride 1 pad 1"):
        matconvnet(path, "vgg_m", PLAIN)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    tensors = random_tensors("alexnet")
    tensors["conv3.bias"][5] = float("nan")
    write_torchvision(tmp_path / "nan.pth", tensors)
    with pytest.raises(ValueError, match=r"expected finite weights, got infinite or NaN ones in features\.5\.bias"):
        formats.state_dict(tmp_path / "nan.pth", "alexnet", PLAIN)


def test_a_wrapped_state_dict_is_found_and_odd_ones_refused(tmp_path):
    write_torchvision(tmp_path / "a.pth", random_tensors("alexnet"))
    torch.save({"state_dict": torch.load(tmp_path / "a.pth"), "epoch": 3}, tmp_path / "wrapped.pth")
    assert_same(formats.state_dict(tmp_path / "wrapped.pth", "alexnet", PLAIN).tensors, random_tensors("alexnet"))
    for content in ({"state_dict": [1]}, {3: torch.zeros(2)}):
        torch.save(content, tmp_path / "odd.pth")
        with pytest.raises(ValueError, match=r"odd\.pth: expected"):
            formats.state_dict(tmp_path / "odd.pth", "alexnet", PLAIN)
