"""Copies across the splits are found, other pictures are not, and broken files are told."""

import io

import numpy as np
import pytest
from PIL import Image

from bcnn.data import check as module
from bcnn.data.check import check
from bcnn.data.contract import Dataset, Sample

from .pictures import photograph, write

WIDTH, HEIGHT = 240, 180


def picture(seed):
    return photograph(seed, WIDTH, HEIGHT)


def saved_again(image, quality):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return Image.open(buffer).convert("RGB")


def dataset(train, test):
    """Pictures that are there already; every second one of another class."""
    pairs = [(f"train{i}", i % 2, "train", x) for i, x in enumerate(train)]
    pairs += [(f"test{i}", i % 2, "test", x) for i, x in enumerate(test)]
    samples = tuple(Sample(name, label, split, lambda image=image: image) for name, label, split, image in pairs)
    return Dataset("made", ("a", "b"), samples)


@pytest.mark.parametrize(
    ("change", "exact", "mirrored"),
    [
        (lambda image: image, True, False),
        (lambda image: saved_again(image, 40), False, False),
        (lambda image: image.resize((100, 75)), False, False),
        (lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), False, True),
        (
            lambda image: saved_again(image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).resize((120, 90)), 60),
            False,
            True,
        ),
        (lambda image: image.point(lambda value: 20 + value * 0.8), False, False),
        (lambda image: image.convert("L").convert("RGB"), False, False),
    ],
    ids=["same", "jpeg", "smaller", "mirror", "mirror, smaller, jpeg", "contrast", "grey"],
)
def test_copies_are_found(change, exact, mirrored):
    train = [picture(seed) for seed in range(8)]
    (copy,) = check(dataset(train, [picture(50), change(picture(5))])).copies
    assert (copy.train, copy.test, copy.exact, copy.mirrored) == ("train5", "test1", exact, mirrored)
    assert copy.same_class
    assert 0.9 <= copy.similarity <= 1


def test_other_pictures_are_not_copies_and_copies_within_a_split_do_not_count():
    report = check(dataset([picture(i) for i in range(30)] + [picture(0)], [picture(100 + i) for i in range(30)]))
    assert report.copies == ()
    assert report.clean


def test_blocks_find_what_one_block_finds(monkeypatch):
    made = dataset([picture(i) for i in range(11)], [picture(i).resize((99, 80)) for i in (3, 7, 10, 40)])
    whole = check(made).copies
    monkeypatch.setattr(module, "BLOCK", 2)
    assert [(copy.test, copy.train, pytest.approx(copy.similarity, abs=1e-3)) for copy in check(made).copies] == [
        (copy.test, copy.train, copy.similarity) for copy in whole
    ]
    assert {(copy.test, copy.train) for copy in whole} == {
        ("test0", "train3"),
        ("test1", "train7"),
        ("test2", "train10"),
    }
    assert [copy.same_class for copy in sorted(whole, key=lambda copy: copy.test)] == [False, True, True]


def test_pictures_without_structure_are_copies_only_if_they_are_the_same():
    white, black = (Image.new("RGB", (40, 40), colour) for colour in ("white", "black"))
    other = Image.new("RGB", (41, 40), "white")
    rng = np.random.default_rng(0)
    almost = Image.fromarray(rng.integers(99, 101, (40, 40, 3), dtype=np.uint8))
    steps = [Image.new("L", (64, 64), level) for level in (100, 180)]
    for step, level in zip(steps, (101, 181), strict=True):
        step.paste(level, (32, 0, 64, 64))  # one grey level: no structure, though the edges are the same
    train, test = [white, black, almost, steps[0]], [other, white, Image.new("RGB", (9, 9), "grey"), steps[1]]
    report = check(dataset(train, test))
    assert [(copy.test, copy.train, copy.exact) for copy in report.copies] == [("test1", "train0", True)]


def test_the_report_counts_and_names(tmp_path):
    names = [("a/0.jpg", 0, "train"), ("a/1.jpg", 0, "train"), ("b/0.jpg", 1, "train"), ("a/2.jpg", 0, "test")]
    samples = [Sample(name, label, split, write(tmp_path / name, i)) for i, (name, label, split) in enumerate(names)]
    (tmp_path / "a" / "empty.jpg").touch()
    samples += [
        Sample("a/empty.jpg", 0, "train", tmp_path / "a" / "empty.jpg"),
        Sample("b/gone.jpg", 1, "test", tmp_path / "b" / "gone.jpg"),
    ]
    photograph(9, 10, 12).save(tmp_path / "a" / "2.jpg")
    ticks = []
    made = Dataset("set", ("a", "b", "c"), tuple(samples), ignored=("a/notes.txt",))
    report = check(made, lambda stage, done, total, note="": ticks.append((done, total)))
    assert ticks == [(i, 6) for i in range(1, 7)]
    train, test = report.counts["train"], report.counts["test"]
    assert (train.images, train.classes, train.smallest, train.median, train.largest) == (4, 2, 0, 1, 3)
    assert (test.images, test.classes, test.smallest, test.median, test.largest) == (2, 2, 0, 1, 1)
    assert [(broken.name, broken.split) for broken in report.broken] == [
        ("a/empty.jpg", "train"),
        ("b/gone.jpg", "test"),
    ]
    assert "empty.jpg: expected an image" in report.broken[0].reason
    assert "No such file" in report.broken[1].reason
    assert (report.smallest_size, report.largest_size) == ((10, 12), (48, 36))
    assert report.ignored == ("a/notes.txt",)
    assert not report.clean


def test_a_dataset_in_which_everything_is_broken_or_nothing_is_tested(tmp_path):
    samples = tuple(Sample(f"{i}.jpg", i, "train", tmp_path / f"{i}.jpg") for i in range(2))
    report = check(Dataset("gone", ("a", "b"), samples))
    assert len(report.broken) == 2
    assert report.smallest_size is None
    assert report.counts["test"].images == 0
