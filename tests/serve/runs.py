"""A small run to serve, and a client for it."""

import io
from pathlib import Path

import pytest
from PIL import Image

from bcnn.runs.neighbours import Neighbours
from bcnn.runs.predict import open_run
from tests.descriptors.images import picture_folder
from tests.seams.walk import train

pytest.importorskip("fastapi")


def make_run(root: Path) -> Path:
    """Pictures and a network that was trained on them."""
    pictures = picture_folder(root / "pictures", classes=3, train=8, test=3)
    train(pictures, root / "run")
    return root / "run"


def library_of(run: Path, **options):
    from bcnn.serve.library import Library

    recognizer = open_run(run)
    return Library(run, recognizer, Neighbours(run, recognizer, **options))


def images_of(run: Path) -> list[Path]:
    """The test images."""
    return sorted(path for path in (run.parent / "pictures" / "test").rglob("*.png"))


def png(side: int = 40, colour: str = "red") -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (side, side), colour).save(file, format="PNG")
    return file.getvalue()
