"""MATLAB files that are damaged: refused in words, whatever they do to the library that reads them."""

import numpy as np
import pytest
from scipy.io import savemat

from bcnn.data import mat
from bcnn.models.weights.matconvnet import matconvnet


@pytest.fixture
def path(tmp_path):
    savemat(tmp_path / "x.mat", {"a": np.arange(1000.0), "b": "text"}, do_compression=True)
    return tmp_path / "x.mat"


def damage(path):
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)


def test_a_sound_file_is_read(path):
    assert mat.read(path, "a file", squeeze_me=True)["a"].shape == (1000,)


def test_damage_is_told(path):
    damage(path)
    with pytest.raises(ValueError, match=r"x\.mat: expected a file, got .*; download it again"):
        mat.read(path, "a file")
    with pytest.raises(ValueError, match=r"x\.mat: expected a MatConvNet \.mat file"):
        matconvnet(path, "tiny", None)


@pytest.mark.parametrize(
    ("code", "told"), [("import os; os.abort()", "one that crashes"), ("import time; time.sleep(60)", "more than 1 s")]
)
def test_a_file_that_crashes_or_stops_the_library(path, monkeypatch, code, told):
    monkeypatch.setattr(mat, "_CODE", code)
    monkeypatch.setattr(mat, "LIMIT_S", 1)
    with pytest.raises(ValueError, match=told):
        mat.read(path, "a file")


def test_modules_in_the_current_folder_are_not_run(path, tmp_path, monkeypatch):
    (tmp_path / "scipy.py").write_text("raise SystemExit('hostile')")
    monkeypatch.chdir(tmp_path)
    assert "a" in mat.read(path, "a file")
