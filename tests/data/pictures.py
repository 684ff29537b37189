"""Small pictures for the fixtures of datasets."""

from pathlib import Path

import numpy as np
from PIL import Image


def photograph(seed: int = 0, width: int = 48, height: int = 36) -> Image.Image:
    """Smooth structure that differs from seed to seed."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    return coarse.resize((width, height), Image.Resampling.BICUBIC)


def write(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    photograph(seed).save(path)
    return path
