"""Stanford Cars in both layouts, the .mat files in their real structure."""

import numpy as np
import pytest
from scipy.io import savemat

from bcnn.data.spec import load_dataset

from .pictures import write

CLASSES = np.array([["AM General Hummer SUV 2000", "Acura RL Sedan 2012", "Acura TL Sedan 2012"]], dtype=object)
BOX = [("bbox_x1", "O"), ("bbox_y1", "O"), ("bbox_x2", "O"), ("bbox_y2", "O")]


def annotations(rows, fields):
    """A 1 x N struct array, as MATLAB writes it; the box stands first."""
    table = np.zeros((1, len(rows)), dtype=BOX + [(field, "O") for field in fields])
    for i, row in enumerate(rows):
        table[0, i] = (np.uint8(1), np.uint8(2), np.uint16(300), np.uint16(200), *row)
    return table


@pytest.fixture
def devkit(tmp_path):
    root = tmp_path / "cars"
    for side in ("train", "test"):
        for i in (1, 2, 3):
            write(root / f"cars_{side}" / f"0000{i}.jpg", i)
    (root / "devkit").mkdir()
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": CLASSES})
    fields = ["class", "fname"]
    rows = [(np.uint8(3), "00001.jpg"), (np.uint8(1), "00002.jpg"), (np.uint8(2), "00003.jpg")]
    savemat(root / "devkit" / "cars_train_annos.mat", {"annotations": annotations(rows, fields)})
    rows = [(np.uint8(1), "00001.jpg"), (np.uint8(1), "00002.jpg"), (np.uint8(2), "00003.jpg")]
    savemat(root / "devkit" / "cars_test_annos_withlabels.mat", {"annotations": annotations(rows, fields)})
    savemat(root / "devkit" / "cars_test_annos.mat", {"annotations": annotations([r[1:] for r in rows], ["fname"])})
    return root


DEVKIT = [
    ("cars_train/00001.jpg", 2, "train"),
    ("cars_train/00002.jpg", 0, "train"),
    ("cars_train/00003.jpg", 1, "train"),
    ("cars_test/00001.jpg", 0, "test"),
    ("cars_test/00002.jpg", 0, "test"),
    ("cars_test/00003.jpg", 1, "test"),
]


@pytest.mark.parametrize("labels", ["devkit", "."])
def test_the_layout_of_the_development_kit(devkit, labels):
    name = "cars_test_annos_withlabels.mat"
    (devkit / "devkit" / name).rename(devkit / labels / name)
    dataset = load_dataset(f"cars:{devkit}")
    assert dataset.classes == tuple(CLASSES[0])
    assert [(s.name, s.label, s.split) for s in dataset.samples] == DEVKIT
    assert dataset.samples[-1].open().size == (48, 36)


@pytest.mark.parametrize("folder", ["devkit", "."])
def test_labels_of_the_test_split_may_be_a_table(devkit, folder):
    before = load_dataset(f"cars:{devkit}")
    (devkit / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    lines = [f"0000{i}.jpg,1,2,300,200,{number}\n" for i, number in ((1, 1), (2, 1), (3, 2))]
    (devkit / folder / "anno_test.csv").write_text("".join(lines))
    assert load_dataset(f"cars:{devkit}") == before  # boxes too


@pytest.mark.parametrize("line", ["00001.jpg,1,2,300,200", "00001.jpg,1,2,300,200,one", "00001.jpg,1,2,300,200,9"])
def test_a_table_that_is_malformed_is_told_with_its_line(devkit, line):
    (devkit / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    (devkit / "anno_test.csv").write_text(f"00001.jpg,1,2,300,200,1\n{line}\n")
    with pytest.raises(ValueError, match=r"anno_test\.csv.* 2"):
        load_dataset(f"cars:{devkit}")


def test_a_test_split_without_labels_is_an_error_with_a_remedy(devkit):
    (devkit / "devkit" / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(FileNotFoundError, match=r"got cars_test_annos\.mat, which has no classes; .*put it there"):
        load_dataset(f"cars:{devkit}")


@pytest.mark.parametrize("single", [1, 4])
def test_the_layout_of_a_single_file(tmp_path, single):
    rows = [(f"car_ims/{i:06d}.jpg", np.uint8(1 + i % 2), np.uint8(i > 2)) for i in range(single)]
    table = annotations(rows, ["relative_im_path", "class", "test"])
    savemat(tmp_path / "cars_annos.mat", {"annotations": table, "class_names": CLASSES})
    write(tmp_path / "car_ims" / "000000.jpg")
    if single == 1:
        with pytest.raises(ValueError, match="two classes or more, got only 'AM General"):
            load_dataset(f"cars:{tmp_path}")
        return
    dataset = load_dataset(f"cars:{tmp_path}")
    assert [(s.label, s.split) for s in dataset.samples] == [(0, "train"), (1, "train"), (0, "train"), (1, "test")]
    assert dataset.samples[0].name == "car_ims/000000.jpg"
    assert dataset.samples[0].open().size == (48, 36)


def test_damaged_files_are_named(devkit):
    file = devkit / "devkit" / "cars_train_annos.mat"
    savemat(file, {"annotations": annotations([(np.uint8(4), "00001.jpg")], ["class", "fname"])})
    with pytest.raises(ValueError, match=r"cars_train_annos\.mat, annotation 1: expected a class from 1 to 3, got 4"):
        load_dataset(f"cars:{devkit}")
    savemat(file, {"annotations": annotations([("00001.jpg",)], ["fname"])})
    with pytest.raises(ValueError, match=r"cars_train_annos\.mat: expected annotations with 'class'"):
        load_dataset(f"cars:{devkit}")
    savemat(file, {"other": 1})
    with pytest.raises(ValueError, match=r"expected the variable 'annotations'"):
        load_dataset(f"cars:{devkit}")
    for damage in (b"", b"no such thing" * 20):
        file.write_bytes(damage)
        with pytest.raises(ValueError, match=r"cars_train_annos\.mat: expected a MATLAB file"):
            load_dataset(f"cars:{devkit}")
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"cars_train_annos\.mat, got none; the layout is"):
        load_dataset(f"cars:{devkit}")
    with pytest.raises(FileNotFoundError, match=r"cars: expected devkit/cars_meta\.mat in"):
        load_dataset(f"cars:{devkit / 'devkit'}")


def test_boxes_are_delivered(devkit):
    assert {sample.box for sample in load_dataset(f"cars:{devkit}").samples} == {(0, 1, 300, 200)}
    cut = load_dataset(f"cars:{devkit},box=train")
    assert [sample.cut for sample in cut.samples] == [True] * 3 + [False] * 3
