"""Describable Textures Dataset: ten splits in three equal parts; trained on train and val, as its authors do."""

from __future__ import annotations

from pathlib import Path

from .contract import TEST, TRAIN, Dataset, Sample
from .lists import check_folder, find_root, inside, malformed, read_lines

LAYOUT = "images/<class>/<file>.jpg, labels/train1.txt, labels/val1.txt, labels/test1.txt (and so on to 10)"


def dtd(path: Path, split: int = 1) -> Dataset:
    """One of the ten splits; classes sorted by name.

    Raises: FileNotFoundError for a file that is not there, ValueError with file and line for one that is malformed.
    """
    root = find_root("dtd", path, f"labels/train{split}.txt", ["dtd"], LAYOUT)
    check_folder("dtd", root / "images", LAYOUT)
    found = []
    for side, part in ((TRAIN, "train"), (TRAIN, "val"), (TEST, "test")):
        file = root / "labels" / f"{part}{split}.txt"
        for line, name in read_lines(file):
            if inside(file, line, name).count("/") != 1:
                raise malformed(file, line, "<class>/<file>", name)
            found.append((name, side))
    classes = sorted({name.split("/")[0] for name, _ in found})
    label_of = {name: label for label, name in enumerate(classes)}
    samples = (Sample(name, label_of[name.split("/")[0]], side, root / "images" / name) for name, side in found)
    return Dataset("dtd", tuple(classes), tuple(samples))
