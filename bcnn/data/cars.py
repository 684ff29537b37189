"""Stanford Cars, in the layout of its development kit and in the later one of a single annotation file.

Paper: Sec. 3.1, "Cars"; the official split.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from ..files import MOST_TEXT, check_regular
from . import mat
from .contract import TEST, TRAIN, Box, Dataset, Sample, cut_by_boxes, shown
from .lists import check_folder, find_root, inside, malformed

LAYOUT = (
    "devkit/cars_meta.mat, devkit/cars_train_annos.mat, devkit/cars_test_annos_withlabels.mat (or anno_test.csv), "
    "cars_train/, cars_test/; or cars_annos.mat, car_ims/"
)
WITH_LABELS = "cars_test_annos_withlabels.mat"
TABLE = "anno_test.csv"  # file, box (left, top, right, bottom), class; no header


def cars(path: Path, box: str = "none") -> Dataset:
    """Every annotated image; classes in the order of the annotation files.

    With box="train" the training images are cut out by their boxes, with "both" all are.

    Raises: FileNotFoundError for a file that is not there, ValueError for one that is not as it should be.
    """
    if any((path / child / "cars_annos.mat").is_file() for child in ("", "stanford_cars")):
        whole = _single_file(find_root("cars", path, "cars_annos.mat", ["stanford_cars"], LAYOUT))
    else:
        whole = _devkit(find_root("cars", path, "devkit/cars_meta.mat", ["stanford_cars"], LAYOUT))
    return cut_by_boxes(whole, box)


def _single_file(root: Path) -> Dataset:
    file = root / "cars_annos.mat"
    content = _read(file, "annotations", "class_names")
    classes = _class_names(content)
    samples = []
    for number, row in _rows(file, content, "relative_im_path", "class", "test"):
        name = inside(file, number, str(row["relative_im_path"]))
        split = TEST if int(row["test"]) else TRAIN
        samples.append(Sample(name, _label(file, number, row["class"], classes), split, root / name, _box(row)))
    return Dataset("cars", classes, tuple(samples))


def _devkit(root: Path) -> Dataset:
    classes = _class_names(_read(root / "devkit" / "cars_meta.mat", "class_names"))
    samples = []
    annotated = ((TRAIN, root / "devkit" / "cars_train_annos.mat"), (TEST, _test_labels(root)))
    for split, file in annotated:
        folder = f"cars_{split}"
        check_folder("cars", root / folder, LAYOUT)
        for number, fname, class_number, box in _annotated(file):
            name = f"{folder}/{PurePosixPath(inside(file, number, fname)).name}"
            label = _label(file, number, class_number, classes)
            samples.append(Sample(name, label, split, root / name, box))
    return Dataset("cars", classes, tuple(samples))


def _annotated(file: Path) -> Iterator[tuple[int, str, Any, Box | None]]:
    """Number, file name, class and box of every image, of a .mat file or of a table."""
    if file.suffix != ".csv":
        for number, row in _rows(file, _read(file, "annotations"), "fname", "class"):
            yield number, str(row["fname"]), row["class"], _box(row)
        return
    check_regular(file, MOST_TEXT)
    with file.open(newline="", encoding="utf-8") as lines:
        for number, line in enumerate(csv.reader(lines), start=1):
            try:
                name, left, top, right, bottom, class_number = line
                yield number, name, int(class_number), _from_one(float(left), float(top), float(right), float(bottom))
            except ValueError:
                raise malformed(file, number, "file, left, top, right, bottom, class", ",".join(line)) from None


def _test_labels(root: Path) -> Path:
    for file in (folder / name for name in (WITH_LABELS, TABLE) for folder in (root / "devkit", root)):
        if file.is_file():
            return file
    got = "cars_test_annos.mat, which has no classes" if (root / "devkit" / "cars_test_annos.mat").is_file() else "none"
    raise FileNotFoundError(
        f"cars: expected {WITH_LABELS} or {TABLE} in {shown(str(root))} or its devkit/, got {got}; the former is a "
        "download of its own beside the development kit: put it there."
    )


def _read(path: Path, *names: str) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"cars: expected the file {shown(str(path))}, got none; the layout is: {LAYOUT}.")
    content = mat.read(path, "a MATLAB file of Stanford Cars", squeeze_me=True)
    for name in names:
        if name not in content:
            raise ValueError(f"{shown(str(path))}: expected the variable {name!r}, got none; download it again.")
    return content


def _class_names(content: dict[str, Any]) -> tuple[str, ...]:
    import numpy

    return tuple(str(name) for name in numpy.atleast_1d(content["class_names"]))


def _rows(path: Path, content: dict[str, Any], *fields: str) -> list[tuple[int, Any]]:
    """The annotations, numbered from 1, with the fields they must have."""
    import numpy

    table = numpy.atleast_1d(content["annotations"])
    missing = [field for field in fields if field not in (table.dtype.names or ())]
    if missing:
        raise ValueError(f"{shown(str(path))}: expected annotations with {missing[0]!r}, got {table.dtype.names}.")
    return list(enumerate(table, start=1))


def _box(row: Any) -> Box | None:
    if not {"bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2"} <= set(row.dtype.names):
        return None
    return _from_one(*(float(row[f"bbox_{name}"]) for name in ("x1", "y1", "x2", "y2")))


def _from_one(left: float, top: float, right: float, bottom: float) -> Box:
    """Pixels are counted from 1 in the files, the last one is inside."""
    return left - 1, top - 1, right, bottom


def _label(path: Path, number: int, value: Any, classes: tuple[str, ...]) -> int:
    """Classes are counted from 1 in the files."""
    if not 1 <= int(value) <= len(classes):
        raise malformed(path, number, f"a class from 1 to {len(classes)}", int(value), "annotation")
    return int(value) - 1
