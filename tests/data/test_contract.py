"""Samples, datasets, and the split by a hash."""

import os
from pathlib import Path

import pytest
from PIL import Image

from bcnn.data.contract import Dataset, Sample, shown, split_by_stratum

from .pictures import write


def samples(counts):
    return [Sample(f"{k}/{i}", k, "train", Path("x")) for k, count in enumerate(counts) for i in range(count)]


def names_tested(split):
    return {sample.name for sample in split if sample.split == "test"}


def test_every_class_gives_its_share():
    split = split_by_stratum(samples([1, 2, 3, 40]), test_share=0.25, seed=0)
    numbers = [sum(sample.label == k and sample.split == "test" for sample in split) for k in range(4)]
    assert numbers == [0, 1, 1, 10]
    assert [sample.name for sample in split] == [sample.name for sample in samples([1, 2, 3, 40])]  # the order stays
    almost_all = split_by_stratum(samples([2, 5]), test_share=0.99, seed=0)
    assert [sum(s.label == k and s.split == "train" for s in almost_all) for k in range(2)] == [1, 1]


def test_the_split_is_the_hash_s_and_no_one_else_s():
    first = names_tested(split_by_stratum(samples([20, 20]), test_share=0.5, seed=0))
    assert first == names_tested(split_by_stratum(samples([20, 20])[::-1], test_share=0.5, seed=0))
    assert first != names_tested(split_by_stratum(samples([20, 20]), test_share=0.5, seed=1))
    grown = names_tested(
        split_by_stratum([*samples([20, 20]), Sample("0/new", 0, "train", Path("x"))], test_share=0.5, seed=0)
    )
    assert len((first ^ grown) - {"0/new"}) <= 1


@pytest.mark.parametrize("share", [0, 1, -0.1, float("nan")])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(ValueError, match="expected test_share between 0 and 1"):
        split_by_stratum(samples([2, 2]), test_share=share, seed=0)


def test_samples_open_files_and_what_makes_pictures(tmp_path):
    file = write(tmp_path / "a.png")
    there, gone = Sample("a", 0, "train", file), Sample("b", 0, "train", tmp_path / "b.png")
    made = Sample("c", 0, "test", lambda: Image.new("RGB", (3, 4)))
    assert (there.open().size, made.open().size) == ((48, 36), (3, 4))
    size, changed, checksum = there.fingerprint()
    assert (size, changed) == (file.stat().st_size, file.stat().st_mtime_ns)
    assert made.fingerprint() == gone.fingerprint() == (0, 0, 0)
    assert there.matches((size, changed, 0))  # not read again
    assert there.matches((size, 0, checksum))
    assert not there.matches((size, 0, checksum + 1))
    assert not there.matches((size + 1, changed, checksum))
    assert gone.matches((0, 0, 0))
    assert not there.matches((0, 0, 0))
    with pytest.raises(FileNotFoundError, match=r"b\.png"):
        gone.open()
    dataset = Dataset("x", ("k",), (there, gone, made))
    assert dataset.of("train") == (there, gone)


def test_shown_is_printable():
    assert shown("Größe ☃/a b.jpg") == "Größe ☃/a b.jpg"
    assert shown(os.fsdecode(b"byte\xff.jpg")) == r"byte\udcff.jpg"
    assert shown("a\nb\x1b[31m") == r"a\nb\x1b[31m"


def test_fingerprints_of_what_is_no_file_of_a_bearable_size_are_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    with (tmp_path / "sparse.jpg").open("wb") as file:
        file.truncate(40 * 10**9)
    for name in ("pipe.jpg", "sparse.jpg"):
        assert Sample(name, 0, "train", tmp_path / name).fingerprint() == (0, 0, 0)
