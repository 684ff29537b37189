"""Heads from their configuration: plain data, shapes said when built, parts of one's own, wrong options named."""

import json
from dataclasses import asdict

import pytest
import torch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.parts.registry import Part
from bcnn.parts.shapes import Maps, Matrix, Spd, Vector
from bcnn.pooling import POOLINGS
from bcnn.pooling.contract import Normalization, Pooling
from bcnn.pooling.head import Head, describe, from_first_version, make_config
from bcnn.pooling.normalize import NORMALIZATIONS

from .helpers import relu_features


def test_config_is_plain_data():
    config = make_config("o2p", eps=0.5, normalize="l2")
    assert json.loads(json.dumps(asdict(config)))["normalize"] == ["l2"]
    assert make_config("bcnn", eps=None).pooling == "bilinear(eps=0.0)"  # None leaves the preset's
    assert make_config("o2p", pooling="bilinear(eps=1, eps_scale=absolute)").pooling == (
        "bilinear(eps=1.0, eps_scale='absolute')"
    )
    assert make_config("improved_bcnn", normalize="matrix_sqrt(forward='auto')").normalize == ("matrix_sqrt",)
    assert "eps=0.5" in repr(Head("o2p", eps=0.5))


def test_a_head_from_its_configuration():
    head = Head("o2p", eps=0.3, layout="tokens")
    assert Head(head.config).config == head.config
    assert Head(head.config, eps=0.1).config.pooling == "bilinear(eps=0.1)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "improved"}, "unknown preset 'improved'; did you mean 'improved_bcnn'"),
        ({"pooling": "max"}, "unknown pooling 'max'"),
        ({"normalise": "l2"}, "unknown option of .*: 'normalise'; did you mean 'normalize'"),
        ({"preset": "average", "normalize": "matrix_sqrt"}, "matrix functions follow bilinear pooling"),
        ({"pooling": "fisher(num_words=4)", "channels": 8}, "any other matrix has singular_power"),
        ({"layout": "nchw"}, "unknown layout 'nchw'"),
        ({"eps": -1.0}, "expected `eps`"),
        ({"thin": "off"}, "expected `thin` to be True, False or None, got 'off'"),
        ({"triangle": "no"}, "expected `triangle` to be True or False, got 'no'"),
        ({"normalize": 3}, "expected `normalize` to be text or a list of texts, got 3"),
        ({"normalize": [bcnn.SignedSqrt()]}, "expected `normalize` to be text or a list of texts"),
        ({"preset": "average", "eps": 1.0}, "unknown option of average, l2: 'eps'"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Head(**arguments)


def test_configurations_of_the_first_version_are_translated():
    old = {"pooling": "bilinear", "normalize": ["matrix_log", "l2"], "eps": 0.003, "eps_scale": "trace",
           "layout": "maps", "triangle": True, "thin": None}  # fmt: skip
    assert from_first_version(old) == make_config("o2p")
    old |= {"pooling": "average", "normalize": ["l2"], "eps": 0.001}
    assert from_first_version(old) == make_config("average")
    old |= {"pooling": "bilinear", "normalize": ["matrix_sqrt", "l2"], "thin": False}
    assert from_first_version(old).normalize == ("matrix_sqrt(thin=False)", "l2")


@pytest.mark.parametrize("channels", [0, 512.5, "512", [8, "8"]])
def test_wrong_channels_are_named(channels):
    with pytest.raises(ValueError, match="expected `channels` to be a whole number >= 1, or a list of them"):
        Head("bcnn", channels)


def test_shapes_are_said_when_a_head_is_built():
    assert Head("improved_bcnn", 8).out == Vector(36)
    assert Head("improved_bcnn", 8, triangle=False).out == Vector(64)
    assert Head("average", 8).out == Vector(8)
    assert Head("bcnn").out is None
    assert Head("bcnn").shape(Maps(3)) == Vector(6)
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric positive .* got a vector of 8 numbers"):
        Head("improved_bcnn", 8, pooling="average")


class ShiftedPool(Pooling):
    """Bilinear pooling with a ridge of its own.

    Args:
        shift: what is added to the diagonal.
    """

    def __init__(self, shift: float = 0.0):
        super().__init__()
        self.shift = shift

    def shape(self, *inputs):
        return Spd(inputs[0].channels)

    def forward(self, features, *, layout="maps", mask=None):
        A = bcnn.bilinear_pool(features, eps=0.0, layout=layout, mask=mask)
        return A + self.shift * torch.eye(features.shape[1])


def test_a_new_pooling_is_one_registration(monkeypatch):
    monkeypatch.setitem(POOLINGS, "shifted", Part(ShiftedPool, "with a ridge of its own"))
    features = relu_features(2, 6, 2, 2)
    expected = describe(features, eps=0.3, eps_scale="absolute", thin=False)
    torch.testing.assert_close(describe(features, pooling="shifted(shift=0.3)"), expected)
    torch.testing.assert_close(describe(features, pooling="shifted", shift=0.3), expected)
    assert POOLINGS["shifted"].options["shift"].help == "what is added to the diagonal."
    with pytest.raises(ValueError, match="expected thin=True with"):
        Head(pooling="shifted", shift=0.3, thin=True)
    with pytest.raises(ValueError, match=r"unknown option of shifted, .*: 'eps_scale'"):
        Head(pooling="shifted", eps_scale="absolute")


class FirstColumns(Normalization):
    takes = "spd"

    def shape(self, given):
        return Matrix(given.dim, 2)

    def forward(self, A):
        return formed(A)[..., :2]


def test_a_part_that_makes_something_else_of_a_matrix(monkeypatch):
    monkeypatch.setitem(NORMALIZATIONS, "first_columns", Part(FirstColumns, "two columns"))
    features = relu_features(2, 6, 4, 4)
    head = Head("bcnn", 6, normalize=["first_columns"])
    assert head.out == Vector(12)
    torch.testing.assert_close(head(features), bcnn.bilinear_pool(features, eps=0)[..., :2].flatten(1))
