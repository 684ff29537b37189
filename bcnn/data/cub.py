"""Caltech-UCSD Birds 200-2011, whole or in part: image and class numbers need not be contiguous.

Paper: Sec. 3.1, "Birds"; the official split.
"""

from __future__ import annotations

from pathlib import Path

from .contract import TEST, TRAIN, Box, Dataset, Sample, cut_by_boxes
from .lists import check_folder, find_root, inside, malformed, read_pairs

LAYOUT = (
    "images.txt, image_class_labels.txt, train_test_split.txt, classes.txt, images/<class>/<file>.jpg"
    "; bounding_boxes.txt if there are boxes"
)


def cub(path: Path, box: str = "none") -> Dataset:
    """Every image of images.txt, classes in the order of classes.txt and under its names ("113.Baird_Sparrow").

    With box="train" the training images are cut out by their boxes, with "both" all are.

    Raises: FileNotFoundError for a file that is not there, ValueError with file and line for one that is malformed.
    """
    root = find_root("cub", path, "images.txt", ["CUB_200_2011"], LAYOUT)
    check_folder("cub", root / "images", LAYOUT)
    classes = _table(root / "classes.txt")
    label_of = {number: label for label, number in enumerate(classes)}
    class_of = _table(root / "image_class_labels.txt")
    in_train = _table(root / "train_test_split.txt")
    boxes = _boxes(root / "bounding_boxes.txt")
    samples = []
    images = root / "images.txt"
    for line, number, name in read_pairs(images):
        if number not in class_of or number not in in_train:
            raise malformed(images, line, "a number in image_class_labels.txt and train_test_split.txt", number)
        class_line, class_number = class_of[number]
        if class_number not in label_of:
            file = root / "image_class_labels.txt"
            raise malformed(file, class_line, "a class number of classes.txt", class_number)
        split_line, flag = in_train[number]
        if flag not in ("0", "1"):
            raise malformed(root / "train_test_split.txt", split_line, "1 (train) or 0 (test)", flag)
        file = root / "images" / inside(images, line, name)
        split = TRAIN if flag == "1" else TEST
        samples.append(Sample(name, label_of[class_number], split, file, boxes.get(number)))
    return cut_by_boxes(Dataset("cub", tuple(name for _, name in classes.values()), tuple(samples)), box)


def _boxes(path: Path) -> dict[str, Box]:
    """From left, top, width and height; none if there is no such file."""
    if not path.exists():
        return {}
    found: dict[str, Box] = {}
    for number, (line, text) in _table(path).items():
        try:
            left, top, width, height = map(float, text.split())
        except ValueError:
            left = top = width = height = -1.0
        if not (width > 0 and height > 0 and left >= 0 and top >= 0 and left + width + top + height < float("inf")):
            raise malformed(path, line, "left, top, width and height of a box in pixels", text)
        found[number] = left, top, left + width, top + height
    return found


def _table(path: Path) -> dict[str, tuple[int, str]]:
    """The second field and its line, by the first."""
    table: dict[str, tuple[int, str]] = {}
    for line, key, value in read_pairs(path):
        if key in table:
            raise malformed(path, line, f"every number once (it stands in line {table[key][0]}, too)", key)
        table[key] = line, value
    return table
