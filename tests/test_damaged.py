"""A file that a disk has damaged is never taken for what was written: descriptors, models, checkpoints."""

import re

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import bcnn
from bcnn.descriptors.extract import ExtractOptions, extract
from bcnn.descriptors.folder import Descriptors, chunk_path
from bcnn.errors import DamagedFileWarning
from bcnn.files import DamagedFileError
from bcnn.finetune import checkpoint
from tests.descriptors.images import dataset_of, network, picture_folder

OPTIONS = ExtractOptions(chunk=8)


@pytest.fixture
def folder(tmp_path):
    dataset = dataset_of(picture_folder(tmp_path / "pictures"))
    extract(dataset, {tmp_path / "f": network()}, OPTIONS)
    return tmp_path / "f"


def zero_half(path):
    """The second half of a file is gone, its length and its header are not."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def without_digest(path):
    """The file as earlier versions wrote it."""
    with safe_open(path, framework="pt") as file:
        about = {name: value for name, value in file.metadata().items() if name != "crc32"}
        assert about != file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, metadata=about)


def refused(path):
    return pytest.raises(DamagedFileError, match=re.escape(str(path)) + r": expected .* damaged. Delete it and give")


def test_a_damaged_chunk_is_refused_and_described_again(folder):
    everything = Descriptors(folder).matrix("train").columns(0, 10**6)
    path = chunk_path(folder, 0)
    others = {other: other.stat().st_mtime_ns for other in folder.glob("chunk-*") if other != path}
    zero_half(path)
    with refused(path):
        Descriptors(folder).matrix("train")
    dataset = dataset_of(folder.parent / "pictures")
    with pytest.warns(DamagedFileWarning, match=r"chunk-00000.* described again"):
        done = extract(dataset, {folder: network()}, OPTIONS)
    assert done.num_done == 8
    assert {other: other.stat().st_mtime_ns for other in others} == others
    assert torch.equal(Descriptors(folder).matrix("train").columns(0, 10**6), everything)


def test_chunks_of_earlier_versions_are_read(folder):
    everything = Descriptors(folder).matrix("train").columns(0, 10**6)
    for path in folder.glob("chunk-*"):
        without_digest(path)
    assert torch.equal(Descriptors(folder).matrix("train").columns(0, 10**6), everything)
    assert extract(dataset_of(folder.parent / "pictures"), {folder: network()}, OPTIONS).num_done == 0


def test_a_damaged_model_is_refused(tmp_path):
    path = bcnn.save(network(num_classes=3), tmp_path / "m.safetensors")
    bcnn.load(path)
    without_digest(path)
    bcnn.load(path)
    bcnn.save(network(num_classes=3), path)
    zero_half(path)
    with refused(path):
        bcnn.load(path)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path, model = tmp_path / "last.safetensors", network(num_classes=3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint.save(path, model, optimizer, checkpoint.State(epoch=3), {"seed": 0})
    assert checkpoint.load(path, model, optimizer, {"seed": 0}).epoch == 3
    without_digest(path)
    assert checkpoint.load(path, model, optimizer, {"seed": 0}).epoch == 3
    checkpoint.save(path, model, optimizer, checkpoint.State(epoch=3), {"seed": 0})
    zero_half(path)
    with refused(path):
        checkpoint.load(path, model, optimizer, {"seed": 0})


def test_a_header_that_was_changed_is_damage_too(tmp_path):
    path = bcnn.save(network(num_classes=3), tmp_path / "m.safetensors", notes={"temperature": 0.5})
    path.write_bytes(path.read_bytes().replace(b"0.5", b"0.7", 1))
    with refused(path):
        bcnn.load(path)
