"""Folders of images, a folder a class: train/ and test/ with classes in them, or classes alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .contract import TEST, TRAIN, Dataset, Sample, shown, split_by_stratum

LAYOUT = "train/<class>/<image> and test/<class>/<image> (or val/, valid/, validation/), or <class>/<image>"
SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".jp2", ".avif",
            ".ppm", ".pgm", ".pbm", ".pnm"}  # fmt: skip
TEST_NAMES = ("test", "val", "valid", "validation")
TEST_SHARE, SEED = 0.25, 0
UNREADABLE = "(this folder may not be read)"


def folder(path: Path, test_share: float | None = None, seed: int | None = None) -> Dataset:
    """Images below class folders, sorted; links are followed, hidden files and folders passed over.

    Without train/ and test/, a share of every class becomes the test split (`split_by_stratum`).

    Raises: FileNotFoundError or NotADirectoryError for a wrong path, ValueError for another layout.
    """
    if not path.is_dir():
        kind = NotADirectoryError if path.exists() else FileNotFoundError
        raise kind(f"folder: expected a folder at {shown(str(path))}, got none; the layout is: {LAYOUT}.")
    folders, files = _entries(path)
    sides = _sides(path, folders)
    found = _Found(path)
    if sides is None:
        found.add(path, TRAIN)
        dataset = found.dataset()
        return replace(dataset, samples=split_classes(dataset.samples, test_share, seed))
    if test_share is not None or seed is not None:
        raise ValueError(
            f"folder: expected no test_share and seed (defaults {TEST_SHARE} and {SEED}) for a folder that has train/; "
            "leave them out."
        )
    for split, name in sides.items():
        found.add(path / name, split)
    found.ignored += [*(f"{name}/" for name in folders if name not in sides.values()), *files]
    return found.dataset()


def split_classes(samples: Sequence[Sample], test_share: float | None, seed: int | None) -> tuple[Sample, ...]:
    """A test split by `split_by_stratum`, with our defaults for what is not said."""
    return split_by_stratum(
        samples, test_share=TEST_SHARE if test_share is None else test_share, seed=SEED if seed is None else seed
    )


def _sides(path: Path, folders: Sequence[str]) -> dict[str, str] | None:
    """The folder of each split; None if the folders are classes, of which one may be called train (the vehicle)."""
    train = next((name for name in folders if name.lower() == TRAIN), None)
    tests = [name for wanted in TEST_NAMES for name in folders if name.lower() == wanted]
    if train is None:
        if folders and len(tests) == len(folders):
            raise ValueError(f"folder: expected train/ beside {tests[0]}/, got none; the layout is: {LAYOUT}.")
        return None
    inner, files = _entries(path / train)
    if not tests and (not inner or any(map(is_image, files))):
        return None
    return {TRAIN: train, TEST: tests[0]} if tests else {TRAIN: train}


class _Found:
    """What has been found below `root` so far."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images: list[tuple[str, str, str]] = []  # name, class, split
        self.ignored: list[str] = []

    def add(self, side: Path, split: str) -> None:
        """Add the class folders of one split."""
        classes, files = _entries(side)
        if not classes:
            got = "images that are in no class" if any(map(is_image, files)) else "no folders"
            raise ValueError(
                f"folder: expected a folder for every class in {shown(str(side))}, got {got}; the layout is: {LAYOUT}."
            )
        self.ignored += [self._name(side / file) for file in files]
        above = {os.path.realpath(self.root), os.path.realpath(side)}
        for name in classes:
            inside = list(_walk(side / name, set(above)))
            images = [self._name(file) for file in inside if is_image(file)]
            self.images += [(file, name, split) for file in images]
            self.ignored += [self._name(file) for file in inside if not is_image(file)]
            if not images:
                self.ignored.append(f"{self._name(side / name)}/")

    def _name(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def dataset(self) -> Dataset:
        if not self.images:
            raise ValueError(
                f"folder: expected images in {shown(str(self.root))}, got none; the layout is: {LAYOUT}, "
                f"the suffixes are: {' '.join(sorted(SUFFIXES))}."
            )
        trained = {name for _, name, split in self.images if split == TRAIN}
        untrained = sorted({name for _, name, _ in self.images} - trained)
        if untrained:
            raise ValueError(
                f"folder: expected every class of the test split in train/, too, got {len(untrained)} that are not, "
                f"such as {shown(untrained[0])!r}; move or rename it."
            )
        classes = sorted(trained)
        label_of = {name: label for label, name in enumerate(classes)}
        samples = tuple(Sample(file, label_of[name], split, self.root / file) for file, name, split in self.images)
        return Dataset("folder", tuple(classes), samples, ignored=tuple(self.ignored))


def _walk(path: Path, seen: set[str]) -> Iterator[Path]:
    """Files at any depth; a folder that links lead to more than once is walked once, so loops end."""
    real = os.path.realpath(path)
    if real in seen:
        return
    seen.add(real)
    try:
        folders, files = _entries(path)
    except PermissionError:
        yield path / UNREADABLE  # told among what is ignored; the other folders are read
        return
    yield from (path / name for name in files)
    for name in folders:
        yield from _walk(path / name, seen)


def _entries(path: Path) -> tuple[list[str], list[str]]:
    """Names of folders, and of all else (links that lead nowhere, too), sorted, without the hidden ones."""
    folders: list[str] = []
    files: list[str] = []
    for name in sorted(os.listdir(path)):
        if name.startswith("."):
            continue
        if not (path / name).is_dir():
            files.append(name)
        elif not _is_output(path / name):
            folders.append(name)
    return folders, files


def _is_output(path: Path) -> bool:
    """Whether a folder holds descriptors or a run of ours, whose pictures are nobody's class."""
    written = any((path / name).is_file() for name in ("descriptors.json", "metrics.json"))
    return written or ((path / "config.yaml").is_file() and (path / "descriptors").is_dir())


def is_image(path: str | Path) -> bool:
    """Whether the name ends like that of an image."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def images_in(path: Path) -> list[Path]:
    """The images of a folder at any depth, by the suffixes of their names."""
    return [file for file in _walk(path, set()) if is_image(file)]
