"""Small folders of pictures, and a small network for them."""

from pathlib import Path

import numpy as np
import torch
from PIL import Image

from bcnn.data.contract import TEST, TRAIN, Dataset, Sample
from bcnn.models.bcnn import BCNN
from bcnn.models.build import build_model


def draw(path: Path, seed: int, *, stripes: int = 2, side: int = 48) -> Path:
    """Stripes of a class's own width, with noise of the picture's own."""
    random = np.random.default_rng(seed)
    rows, columns = np.mgrid[:side, :side]
    wave = 128 + 80 * np.sin(2 * np.pi * stripes * (rows + columns * random.uniform(0.5, 1.5)) / side)
    pixels = wave[..., None] + random.normal(0, 25, (side, side, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)
    return path


def picture_folder(root: Path, *, classes: int = 3, train: int = 4, test: int = 3) -> Path:
    """root/train/<class>/*.png and root/test/<class>/*.png."""
    seed = 0
    for label in range(classes):
        for split, count in ((TRAIN, train), (TEST, test)):
            for i in range(count):
                draw(root / split / f"class_{label}" / f"{i}.png", seed := seed + 1, stripes=2 + 4 * label)
    return root


def dataset_of(root: Path) -> Dataset:
    """As the folder's own loader would have it, without it."""
    paths = sorted(path for path in root.rglob("*") if path.suffix == ".png")
    classes = sorted({path.parent.name for path in paths})
    samples = tuple(
        Sample(str(path.relative_to(root)), classes.index(path.parent.name), path.parts[-3], path) for path in paths
    )
    return Dataset("pictures", tuple(classes), samples)


def network(preset: str = "bcnn", **options) -> BCNN:
    """Random weights, the same every time."""
    torch.manual_seed(0)
    return build_model(preset, backbone="tiny", weights=None, size=32, **options)
