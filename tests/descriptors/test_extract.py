"""Descriptors on disk are those of the network, whatever happens on the way."""

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from bcnn.descriptors import extract as module
from bcnn.descriptors.extract import ExtractOptions, decoded, extract, for_dataset
from bcnn.descriptors.folder import Descriptors, chunk_path
from bcnn.models.bcnn import with_head
from bcnn.models.views import to_batch
from bcnn.pooling.head import PRESETS
from tests.descriptors.images import dataset_of, draw, network, picture_folder


@pytest.fixture
def pictures(tmp_path):
    return dataset_of(picture_folder(tmp_path / "pictures"))


OPTIONS = ExtractOptions(batch=2, chunk=4)


def test_descriptors_are_those_of_the_network(pictures, tmp_path):
    model = network()
    done = extract(pictures, {tmp_path / "f": model}, OPTIONS)
    assert (done.num_images, done.num_done, done.broken) == (21, 21, {})
    descriptors = Descriptors(tmp_path / "f")
    for split in ("train", "test"):
        matrix = descriptors.matrix(split)
        samples = [s for s in pictures.samples if s.split == split]
        assert [descriptors.entries[row].name for row in matrix.rows] == [s.name for s in samples]
        images = torch.stack([model.config.preprocessing(s.open()) for s in samples])
        with torch.inference_mode():
            expected = torch.stack([model.describe(images), model.describe(images.flip(-1))], 1).flatten(0, 1)
        torch.testing.assert_close(matrix.columns(0, model.descriptor_length), expected)
        torch.testing.assert_close(matrix.columns(5, 9), expected[:, 5:9])
        assert matrix.labels.tolist() == [s.label for s in samples for _ in range(2)]
        assert matrix.groups.tolist() == [i for i in range(len(samples)) for _ in range(2)]
        assert matrix.shape == expected.shape


def test_without_flips_there_is_one_view(pictures, tmp_path):
    extract(pictures, {tmp_path / "f": network()}, replace(OPTIONS, flips=False))
    matrix = Descriptors(tmp_path / "f").matrix("train")
    assert matrix.shape[0] == 12
    assert matrix.num_views == 1


def test_presets_share_the_backbone_and_get_a_folder_each(pictures, tmp_path, monkeypatch):
    base = network()
    models = {tmp_path / name: with_head(base, PRESETS[name]) for name in ("average", "bcnn", "improved_bcnn")}
    passes = []
    forward = base.backbone.forward
    monkeypatch.setattr(base.backbone, "forward", lambda images: passes.append(len(images)) or forward(images))
    extract(pictures, models, OPTIONS)
    assert sum(passes) == 2 * 21
    for path, model in models.items():
        extract(pictures, {tmp_path / "alone" / path.name: network(path.name)}, OPTIONS)
        alone = Descriptors(tmp_path / "alone" / path.name).matrix("test").columns(0, 10**6)
        assert torch.equal(Descriptors(path).matrix("test").columns(0, 10**6), alone)
        assert alone.shape[1] == model.descriptor_length


def test_other_backbones_are_not_taken_for_shared(pictures, tmp_path):
    with pytest.raises(ValueError, match="share their branches"):
        extract(pictures, {tmp_path / "a": network(), tmp_path / "b": network()}, OPTIONS)
    with pytest.raises(ValueError, match="at least one network"):
        extract(pictures, {}, OPTIONS)


def test_finished_chunks_are_not_done_again(pictures, tmp_path, monkeypatch):
    folder = tmp_path / "f"
    extract(pictures, {folder: network()}, OPTIONS)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    chunk_path(folder, 2).unlink()
    chunk_path(folder, 4).write_bytes(b"torn")
    seen = []
    describe = module._describe
    monkeypatch.setattr(module, "_describe", lambda some, *rest: seen.extend(some) or describe(some, *rest))
    done = extract(pictures, {folder: network()}, OPTIONS)
    assert (done.num_done, len(seen)) == (8, 8)
    after = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    changed = {name for name in after if before.get(name) != after[name]}
    assert changed == {chunk_path(folder, 2).name, chunk_path(folder, 4).name}


def test_an_image_that_changed_is_described_again(pictures, tmp_path):
    folder = tmp_path / "f"
    extract(pictures, {folder: network()}, OPTIONS)
    first = Descriptors(folder).matrix("train").columns(0, 100)
    draw(pictures.of("train")[5].source, 77, stripes=11, side=64)
    assert extract(pictures, {folder: network()}, OPTIONS).num_done == 4
    second = Descriptors(folder).matrix("train").columns(0, 100)
    assert [i for i in range(len(first)) if not torch.equal(first[i], second[i])] == [10, 11]


def test_what_counts_is_the_content_of_a_file(pictures, tmp_path):
    folder = tmp_path / "f"
    extract(pictures, {folder: network()}, OPTIONS)
    path = pictures.of("train")[5].source
    os.utime(path, ns=(1, 1))  # a copy of the dataset has other times
    assert extract(pictures, {folder: network()}, OPTIONS).num_done == 0
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)  # as many bytes as before
    assert extract(pictures, {folder: network()}, OPTIONS).num_done == 4


def test_a_folder_of_another_configuration_is_refused(pictures, tmp_path):
    folder = tmp_path / "f"
    extract(pictures, {folder: network()}, OPTIONS)
    other = network()
    with torch.no_grad():
        next(other.backbone.parameters()).mul_(1.001)
    fewer = replace(pictures, samples=pictures.samples[1:])
    for dataset, model, options, message in [
        (
            pictures,
            network("improved_bcnn"),
            OPTIONS,
            r"model\.head\.pooling is 'bilinear\(eps=0\.0\)' there, 'bilinear' now",
        ),
        (pictures, other, OPTIONS, "digest is"),
        (fewer, network(), OPTIONS, "listing is"),
        (pictures, network(), replace(OPTIONS, precision="bf16"), "precision is 'float32' there, 'bf16' now"),
        (pictures, network(), replace(OPTIONS, flips=False), "views is"),
        (pictures, network(), replace(OPTIONS, chunk=8), "chunk is 4 there, 8 now"),
    ]:
        with pytest.raises(ValueError, match=message):
            extract(dataset, {folder: model}, options)
    assert extract(pictures, {folder: network()}, replace(OPTIONS, batch=3, workers=1)).num_done == 0


def test_a_folder_of_something_else_is_left_alone(pictures, tmp_path):
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "thesis.txt").write_text("precious")
    with pytest.raises(ValueError, match="new, empty, or a folder of descriptors"):
        extract(pictures, {tmp_path / "f": network()}, OPTIONS)
    assert [path.name for path in (tmp_path / "f").iterdir()] == ["thesis.txt"]


def test_broken_images_are_named_and_left_out(pictures, tmp_path):
    train = pictures.of("train")
    train[1].source.write_bytes(b"")
    train[2].source.write_bytes(train[3].source.read_bytes()[:100])
    for sample in train[4:8]:  # a whole chunk
        sample.source.unlink()
    folder = tmp_path / "f"
    done = extract(pictures, {folder: network()}, OPTIONS)
    assert set(done.broken) == {sample.name for sample in [*train[1:3], *train[4:8]]}
    assert all(reason for reason in done.broken.values())
    matrix = Descriptors(folder).matrix("train")
    assert matrix.labels.tolist() == [s.label for s in [train[0], train[3], *train[8:]] for _ in range(2)]
    assert matrix.columns(0, 3).isfinite().all()
    with pytest.raises(OSError, match=r"1\.png"):
        extract(pictures, {tmp_path / "g": network()}, replace(OPTIONS, strict=True))
    with pytest.raises(OSError, match=r"1\.png"):  # known to be broken from before
        extract(pictures, {folder: network()}, replace(OPTIONS, strict=True))
    draw(train[1].source, 5)  # mended
    assert len(extract(pictures, {folder: network()}, OPTIONS).broken) == 5
    good = replace(train[4], source=train[0].source)  # a file whose disk was away, say: nothing of it changed
    mended = replace(pictures, samples=tuple(good if s == train[4] else s for s in pictures.samples))
    assert len(extract(mended, {folder: network()}, OPTIONS).broken) == 4


def test_the_batch_is_that_of_the_preprocessing_to_the_last_bit(pictures):
    prepare = replace(network().config.preprocessing, pixel_max=255.0, mean=(123.68, 116.779, 103.939), std=(1, 2, 3))
    for preprocessing in (network().config.preprocessing, prepare):
        some = pictures.samples[:3]
        batch = to_batch([np.asarray(preprocessing.fit(s.open())) for s in some], preprocessing)
        assert torch.equal(batch, torch.stack([preprocessing(s.open()) for s in some]))
        both = to_batch([np.asarray(preprocessing.fit(s.open())) for s in some], preprocessing, flips=True)
        assert torch.equal(both, torch.cat([batch, batch.flip(-1)]))
        assert all(images.is_contiguous(memory_format=torch.channels_last) for images in (batch, both))


def test_aircraft_are_cut_out_of_a_larger_square(pictures):
    preprocessing = network().config.preprocessing
    assert for_dataset(preprocessing, pictures) == preprocessing
    assert for_dataset(preprocessing.at(448), replace(pictures, resize_ratio=512 / 448)).resize_to == 512


def test_decoding_stays_a_few_images_ahead(pictures):
    opened = []

    def watched(sample):
        return replace(sample, source=lambda: opened.append(sample.name) or sample.open())

    options = ExtractOptions(batch=2, workers=1)
    coming = decoded([watched(s) for s in pictures.samples], network().config.preprocessing, options)
    next(coming)
    assert len(opened) <= 2 * options.batch + options.workers + 1
    coming.close()


def test_bfloat16_is_near_and_said(pictures, tmp_path):
    extract(pictures, {tmp_path / "f": network()}, OPTIONS)
    extract(pictures, {tmp_path / "h": network()}, replace(OPTIONS, precision="bf16"))
    full, half = (Descriptors(tmp_path / name) for name in "fh")
    a, b = (f.matrix("train").columns(0, 10**6) for f in (full, half))
    assert not torch.equal(a, b)
    assert torch.nn.functional.cosine_similarity(a, b).min() > 0.999
    assert b.dtype == torch.float32
    assert half.config.precision == "bf16"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"precision": "fp8"}, "float32, bf16"), ({"batch": 0}, "batch >= 1"), ({"workers": -1}, "workers >= 1")],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        ExtractOptions(**options)


def test_a_killed_beginning_does_not_block_the_folder(pictures, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    for name in (".descriptors-x1y2z3_4.json", ".chunk-00000-x1y2z3_4.safetensors"):
        (folder / name).write_text("{")
    os.utime(folder / ".descriptors-x1y2z3_4.json", (0, 0))
    assert extract(pictures, {folder: network()}, OPTIONS).num_done == 21
    assert not (folder / ".descriptors-x1y2z3_4.json").exists()  # old
    assert (folder / ".chunk-00000-x1y2z3_4.safetensors").exists()  # somebody may be writing it


def test_presets_need_room_for_all_of_them(pictures, tmp_path, monkeypatch):
    base = network()
    models = {tmp_path / name: with_head(base, PRESETS[name]) for name in ("bcnn", "improved_bcnn")}
    each = 4 * base.descriptor_length * 2 * 4 * 6
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=int(1.5 * each)))
    with pytest.raises(OSError, match=r"MB free for .*improved_bcnn"):
        extract(pictures, models, OPTIONS)


def test_too_small_a_disk_is_an_error_before_the_work(pictures, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OSError, match=r"expected \d\.\d MB free for .*f, got 0\.0 MB"):
        extract(pictures, {tmp_path / "f": network()}, OPTIONS)
    assert not (tmp_path / "f").exists()


def test_an_unfinished_folder_says_so(pictures, tmp_path):
    extract(pictures, {tmp_path / "f": network()}, OPTIONS)
    chunk_path(tmp_path / "f", 1).unlink()
    descriptors = Descriptors(tmp_path / "f")
    assert descriptors.missing == [1]
    with pytest.raises(OSError, match="expected chunk 1 of 6 in"):
        descriptors.matrix("train")


def test_what_is_no_features_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"bcnn extract.*descriptors\.json"):
        Descriptors(tmp_path)
    (tmp_path / "descriptors.json").write_text("{")
    with pytest.raises(ValueError, match="expected JSON"):
        Descriptors(tmp_path)
    for content in ("[]", json.dumps({"format": "bcnn-descriptors", "version": 1})):
        (tmp_path / "descriptors.json").write_text(content)
        with pytest.raises(ValueError, match=r"descriptors\.json: expected"):
            Descriptors(tmp_path)
    (tmp_path / "descriptors.json").write_text(json.dumps({"format": "bcnn-descriptors", "version": 99}))
    with pytest.raises(ValueError, match="version 1 or older"):
        Descriptors(tmp_path)
