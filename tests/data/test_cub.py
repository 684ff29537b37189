"""CUB-200-2011 in its real layout, numbers with gaps."""

import pytest

from bcnn.data.spec import load_dataset

from .pictures import write


@pytest.fixture
def birds(tmp_path):
    """Two classes of a part of the dataset, two images each."""
    root = tmp_path / "birds"
    names = ["113.Baird_Sparrow/a.jpg", "113.Baird_Sparrow/b.jpg", "158.Warbler/a.jpg", "158.Warbler/b.jpg"]
    for seed, name in enumerate(names):
        write(root / "images" / name, seed)
    numbers = ["6563", "6570", "9001", "9100"]
    lines = {
        "images.txt": [f"{number} {name}" for number, name in zip(numbers, names, strict=True)],
        "image_class_labels.txt": ["9100 158", "6563 113", "6570 113", "9001 158"],  # in another order
        "train_test_split.txt": ["6563 1", "6570 0", "9001 0", "9100 1"],
        "classes.txt": ["113 113.Baird_Sparrow", "158 158.Warbler"],
    }
    for file, content in lines.items():
        (root / file).write_text("\n".join(content) + "\n")
    return root


def replace_in(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_labels_and_splits_are_those_of_the_files(birds):
    dataset = load_dataset(f"cub:{birds}")
    assert dataset.name == "cub"
    assert dataset.classes == ("113.Baird_Sparrow", "158.Warbler")
    assert [(s.name, s.label, s.split) for s in dataset.samples] == [
        ("113.Baird_Sparrow/a.jpg", 0, "train"),
        ("113.Baird_Sparrow/b.jpg", 0, "test"),
        ("158.Warbler/a.jpg", 1, "test"),
        ("158.Warbler/b.jpg", 1, "train"),
    ]
    assert dataset.samples[3].open().size == (48, 36)
    assert dataset.resize_ratio == 1


def test_the_folder_above_will_do(birds):
    birds.rename(birds.parent / "CUB_200_2011")
    assert len(load_dataset(f"cub:{birds.parent}").samples) == 4


def test_files_with_a_mark_carriage_returns_and_letters_of_other_languages(birds):
    (birds / "classes.txt").write_bytes("113 113.Grauammer\r\n158 158.Waldsänger\r\n".encode("utf-8-sig"))
    assert load_dataset(f"cub:{birds}").classes == ("113.Grauammer", "158.Waldsänger")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("images.txt", "6570 113.Baird_Sparrow/b.jpg", "6570", r"images\.txt, line 2: expected two fields"),
        ("images.txt", "6570 ", "6571 ", r"images\.txt, line 2: expected a number in image_class_labels"),
        ("images.txt", "158.Warbler/b.jpg", "../b.jpg", r"images\.txt, line 4: expected a path below"),
        (
            "image_class_labels.txt",
            "6570 113",
            "6570 114",
            r"image_class_labels\.txt, line 3: .*classes\.txt, got '114'",
        ),
        ("train_test_split.txt", "9001 0", "9001 2", r"train_test_split\.txt, line 3: expected 1 \(train\) or 0"),
        ("train_test_split.txt", "9001 0", "6563 0", r"train_test_split\.txt, line 3: expected every number once"),
    ],
)
def test_a_malformed_line_is_named(birds, file, old, new, message):
    replace_in(birds / file, old, new)
    with pytest.raises(ValueError, match=message):
        load_dataset(f"cub:{birds}")


def test_missing_files_are_named(birds):
    (birds / "classes.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"classes\.txt: expected this file"):
        load_dataset(f"cub:{birds}")
    (birds / "images").rename(birds / "pictures")
    with pytest.raises(FileNotFoundError, match=r"expected the folder .*images, got none; the layout is"):
        load_dataset(f"cub:{birds}")
    with pytest.raises(FileNotFoundError, match=r"cub: expected images\.txt in .*the layout is: images\.txt"):
        load_dataset(f"cub:{birds.parent}")


BOXES = "6563 2.0 3.0 20.0 10.0\n6570 0.0 0.0 48.0 36.0\n9001 40.0 30.0 20.0 20.0\n"  # the last image has none


def test_boxes_are_delivered_and_cut_out_where_that_is_asked_for(birds):
    assert all(sample.box is None for sample in load_dataset(f"cub:{birds}").samples)
    (birds / "bounding_boxes.txt").write_text(BOXES)
    dataset = load_dataset(f"cub:{birds}")
    assert [s.box for s in dataset.samples] == [(2, 3, 22, 13), (0, 0, 48, 36), (40, 30, 60, 50), None]
    sizes = {"none": [(48, 36)] * 4, "train": [(24, 12), (48, 36), (48, 36), (48, 36)]}
    sizes["both"] = [(24, 12), (48, 36), (10, 8), (48, 36)]  # with a tenth around it, inside of the image
    for box, expected in sizes.items():
        dataset = load_dataset(f"cub:{birds},box={box}")
        assert [s.open().size for s in dataset.samples] == expected
        assert dataset.name == f"cub,box={box}"
    cut, whole = dataset.samples[0].open(), load_dataset(f"cub:{birds}").samples[0].open()
    assert cut.tobytes() == whole.crop((0, 2, 24, 14)).tobytes()


def test_boxes_that_are_missing_or_malformed_are_named(birds):
    with pytest.raises(ValueError, match="dataset cub, box=train: expected images with boxes, got none"):
        load_dataset(f"cub:{birds},box=train")
    with pytest.raises(ValueError, match="unknown box 'test'"):
        load_dataset(f"cub:{birds},box=test")
    for wrong in ("2.0 3.0 20.0", "2.0 3.0 20.0 x", "2.0 3.0 0.0 5.0", "2.0 3.0 nan 5.0"):
        (birds / "bounding_boxes.txt").write_text(f"6563 {wrong}\n")
        with pytest.raises(ValueError, match=r"bounding_boxes\.txt, line 1: expected left, top, width and height"):
            load_dataset(f"cub:{birds}")
