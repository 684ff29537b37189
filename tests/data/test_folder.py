"""Folders of images, as people have them."""

import os
import sys

import pytest

from bcnn.data.contract import shown
from bcnn.data.folder import images_in
from bcnn.data.spec import load_dataset

from .pictures import write


def tree(root, *names):
    for seed, name in enumerate(names):
        write(root / name, seed)
    return root


def found(dataset):
    return [(sample.name, dataset.classes[sample.label], sample.split) for sample in dataset.samples]


@pytest.mark.parametrize("test", ["test", "val", "valid", "Validation", "TEST"])
def test_train_and_test(tmp_path, test):
    tree(tmp_path, "Train/dog/a.jpg", "Train/cat/deep/er/b.PNG", "Train/cat/a.jpg", f"{test}/cat/a.jpg")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert found(dataset) == [
        ("Train/cat/a.jpg", "cat", "train"),
        ("Train/cat/deep/er/b.PNG", "cat", "train"),
        ("Train/dog/a.jpg", "dog", "train"),
        (f"{test}/cat/a.jpg", "cat", "test"),
    ]
    assert dataset.samples[1].open().size == (48, 36)
    assert dataset.ignored == ()


def test_test_comes_before_val_which_is_ignored(tmp_path):
    tree(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "val/a/2.jpg", "test/a/3.jpg")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert [s.name for s in dataset.of("test")] == ["test/a/3.jpg"]
    assert dataset.ignored == ("val/",)


def test_classes_alone_are_split_the_same_way_every_time(tmp_path):
    tree(tmp_path, *(f"{kind}/{i}.jpg" for kind in "ab" for i in range(8)), "c/only.jpg")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert [len(dataset.of(split)) for split in ("train", "test")] == [13, 4]
    assert dataset == load_dataset(str(tmp_path))
    half = load_dataset(f"{tmp_path},test_share=0.5,seed=1")
    assert half.name == "folder,test_share=0.5,seed=1"
    assert [sum(s.label == label for s in half.of("test")) for label in range(3)] == [4, 4, 0]
    assert {s.name for s in half.of("test")} != {s.name for s in load_dataset(f"{tmp_path},test_share=0.5").of("test")}


def test_a_class_may_be_called_train(tmp_path):
    tree(tmp_path, "train/1.jpg", "train/2.jpg", "plane/1.jpg", "plane/2.jpg")
    assert load_dataset(str(tmp_path)).classes == ("plane", "train")


def test_what_is_ignored_is_told(tmp_path):
    tree(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "train/.hidden/1.jpg", "train/a/.cache/1.jpg", "test/a/1.jpg")
    (tmp_path / "train" / "empty").mkdir()
    for name in ("train/a/notes.txt", "train/a/.DS_Store", "README", "train/list.csv", "train/a/noend"):
        (tmp_path / name).write_text("x")
    dataset = load_dataset(str(tmp_path))
    assert len(dataset.samples) == 3
    assert set(dataset.ignored) == {"train/a/notes.txt", "README", "train/list.csv", "train/a/noend", "train/empty/"}


def test_links_are_followed_once_and_loops_end(tmp_path):
    root = tree(tmp_path / "root", "a/1.jpg", "b/1.jpg")
    elsewhere = tree(tmp_path / "elsewhere", "x/2.jpg", "3.jpg")
    (root / "a" / "folder").symlink_to(elsewhere)
    (root / "a" / "again").symlink_to(elsewhere)
    (elsewhere / "x" / "up").symlink_to(elsewhere)
    (root / "a" / "root").symlink_to(root)
    (root / "c").symlink_to(root)
    (root / "b" / "file.jpg").symlink_to(elsewhere / "3.jpg")
    (root / "b" / "gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (root / "b" / "self.jpg").symlink_to(root / "b" / "self.jpg")
    dataset = load_dataset(str(root))
    assert sorted(s.name for s in dataset.samples) == [
        "a/1.jpg", "a/again/3.jpg", "a/again/x/2.jpg", "b/1.jpg", "b/file.jpg", "b/gone.jpg", "b/self.jpg",
    ]  # fmt: skip
    assert dataset.classes == ("a", "b")
    assert dataset.ignored == ("c/",)
    by_name = {sample.name: sample for sample in dataset.samples}
    assert by_name["a/again/x/2.jpg"].open().size == (48, 36)
    for name in ("b/gone.jpg", "b/self.jpg"):
        assert by_name[name].fingerprint() == (0, 0, 0)
        with pytest.raises(OSError, match=name.split("/")[1]):
            by_name[name].open()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_odd_names_work(tmp_path):
    names = ["with space.jpg", "new\nline.jpg", "snow☃.jpg", os.fsdecode(b"byte\xff.jpg"), "[bold]x,y=1.jpg"]
    tree(tmp_path, *(f"{kind}/{name}" for kind in ("größe", "b c") for name in names))
    dataset = load_dataset(str(tmp_path))
    assert sorted(s.name for s in dataset.samples) == sorted(f"{kind}/{n}" for kind in ("größe", "b c") for n in names)
    assert {sample.open().size for sample in dataset.samples} == {(48, 36)}
    for sample in dataset.samples:
        assert shown(sample.name).encode().decode().isprintable()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.jpg", "2.jpg"], r"a folder for every class in .*, got images that are in no class; the layout is: train/"),
        ([], r"a folder for every class in .*, got no folders"),
        (["a/notes.txt", "b/notes.txt"], r"expected images in .*, got none; .*the suffixes are: .*\.jpg"),
        (["train/1.jpg", "test/1.jpg"], r"a folder for every class in .*train, got images that are in no class"),
        (["test/a/1.jpg"], r"expected train/ beside test/, got none"),
        (["train/a/1.jpg", "train/b/1.jpg", "test/A/1.jpg"], r"every class of the test split in train/.*such as 'A'"),
        (["only/1.jpg", "only/2.jpg"], r"two classes or more, got only 'only'"),
    ],
)
def test_other_layouts_are_refused(tmp_path, names, message):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=message):
        load_dataset(str(tmp_path))


def test_options_of_a_split_that_is_there_are_refused(tmp_path):
    tree(tmp_path, "train/a/1.jpg", "train/b/1.jpg", "test/a/1.jpg")
    with pytest.raises(ValueError, match=r"expected no test_share and seed .* leave them out"):
        load_dataset(f"{tmp_path},seed=0")
    with pytest.raises(NotADirectoryError, match="expected a folder at"):
        load_dataset(f"folder:{tmp_path}/train/a/1.jpg")


def test_images_in_finds_what_the_loader_finds(tmp_path):
    tree(tmp_path, "a/1.jpg", "a/b/2.png", ".h/3.jpg")
    (tmp_path / "a" / "x.txt").write_text("x")
    assert [path.name for path in images_in(tmp_path)] == ["1.jpg", "2.png"]


def test_our_own_outputs_are_no_classes(tmp_path):
    for name in ("ant", "bee", "runs/first", "more/second", "third"):
        write(tmp_path / name / "0.png")
        write(tmp_path / name / "1.png")
    (tmp_path / "runs" / "first" / "metrics.json").write_text("{}")
    (tmp_path / "third" / "descriptors.json").write_text("{}")
    (tmp_path / "more" / "second" / "config.yaml").write_text("")
    (tmp_path / "more" / "second" / "descriptors").mkdir()
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == ("ant", "bee")
    assert {"runs/", "more/"} <= set(dataset.ignored)


def test_a_class_folder_that_may_not_be_read_is_named_and_left_out(tmp_path, monkeypatch):
    tree(tmp_path, "a/1.png", "a/2.png", "b/1.png", "b/2.png", "c/1.png")
    listdir = os.listdir

    def guarded(path):
        if os.path.basename(path) == "c":
            raise PermissionError(13, "Permission denied", str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)
    dataset = load_dataset(str(tmp_path))
    assert dataset.classes == ("a", "b")
    assert "c/" in dataset.ignored
    assert any("may not be read" in name for name in dataset.ignored)
