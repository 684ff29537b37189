"""FGVC-Aircraft 2013b, with classes at three levels.

Paper: Sec. 3.1, "Aircrafts", variants, trained on trainval; Sec. 3.2, "a central crop of size 448x448 obtained from the
image resized to 512x512".
"""

from __future__ import annotations

from pathlib import Path

from .contract import TEST, TRAIN, Dataset, Sample
from .lists import check_folder, find_root, inside, malformed, read_lines, read_pairs

LAYOUT = "data/variants.txt, data/images_variant_trainval.txt, data/images_variant_test.txt, data/images/<number>.jpg"
LEVELS = {"variant": "variants.txt", "family": "families.txt", "manufacturer": "manufacturers.txt"}


def aircraft(path: Path, level: str = "variant") -> Dataset:
    """Images of trainval and test; classes in the order of variants.txt, families.txt or manufacturers.txt.

    Raises: FileNotFoundError for a file that is not there, ValueError with file and line for one that is malformed.
    """
    children = ["data", "fgvc-aircraft-2013b/data"]
    root = find_root("aircraft", path, f"images_{level}_trainval.txt", children, LAYOUT)
    check_folder("aircraft", root / "images", LAYOUT)
    classes = tuple(line for _, line in read_lines(root / LEVELS[level]))
    label_of = {name: label for label, name in enumerate(classes)}
    samples = []
    for split, part in ((TRAIN, "trainval"), (TEST, "test")):
        file = root / f"images_{level}_{part}.txt"
        for line, number, name in read_pairs(file):
            if name not in label_of:
                raise malformed(file, line, f"a class of {LEVELS[level]}", name)
            image = f"{inside(file, line, number)}.jpg"
            samples.append(Sample(image, label_of[name], split, root / "images" / image))
    return Dataset("aircraft", classes, tuple(samples), resize_ratio=512 / 448)
