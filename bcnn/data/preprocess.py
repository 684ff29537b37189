"""From a photograph to what a network was trained on, as data.

Paper: Sec. 3.2, "we resize the image to 448x448 pixels"; aircraft: "a central crop of size 448x448 obtained from the
image resized to 512x512".
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import torch
from torch import Tensor

from ..errors import unknown_name
from ..files import amount

if TYPE_CHECKING:
    from PIL.Image import Image

RESIZES = ("squash", "shorter")
INTERPOLATIONS = ("bilinear", "bicubic")

MAX_SIDE = 8192  # of the square that a network sees: it takes 800 MB there
MAX_RESIZED = 10**8  # pixels, before the middle is cut out
MAX_BYTES = 2**30  # of an image file
# What Pillow may take a file for, whatever its name says; some other formats start programs (EPS: Ghostscript).
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "TIFF", "WEBP", "JPEG2000", "AVIF", "PPM")

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """How pixels become input: resize, crop, scale, subtract the mean, divide by the deviation; RGB throughout.

    Example:
        >>> Preprocessing(size=448).at(224).size
        224
    """

    size: int = 448  # the side of the square that the network sees
    resize: str = "squash"  # to size x size (the paper's), or the shorter side, then the middle square
    resize_to: int | None = None  # resize to this and cut out the middle of `size`; the paper's aircraft: 512
    pixel_max: float = 1.0  # white: 1 or 255
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    interpolation: str = "bilinear"

    def __post_init__(self) -> None:
        if self.resize not in RESIZES:
            raise unknown_name("preprocessing", "resize", self.resize, RESIZES)
        if self.interpolation not in INTERPOLATIONS:
            raise unknown_name("preprocessing", "interpolation", self.interpolation, INTERPOLATIONS)
        to = self.size if self.resize_to is None else self.resize_to
        if not 1 <= self.size <= to <= MAX_SIDE:
            raise ValueError(
                f"preprocessing: expected size >= 1, resize_to >= size, and {MAX_SIDE} pixels at most, got {self.size} "
                f"and {self.resize_to}."
            )

    def at(self, size: int) -> Preprocessing:
        """The same for another side of the square, `resize_to` in proportion."""
        to = None if self.resize_to is None else round(self.resize_to * size / self.size)
        return replace(self, size=size, resize_to=to)

    def __call__(self, image: Image) -> Tensor:
        """A photograph as a tensor of shape (3, size, size)."""
        return self.normalize(self.fit(image))

    def fit(self, image: Image) -> Image:
        """The RGB square that the network sees, still a picture."""
        from PIL.Image import Resampling

        image = to_rgb(image)
        to = self.resize_to or self.size
        width, height = to, to
        if self.resize == "shorter":
            factor = to / min(image.size)
            width, height = (max(to, round(side * factor)) for side in image.size)
            if width * height > MAX_RESIZED:
                raise ValueError(f"preprocessing: expected an image that is not so narrow, got {image.size}.")
        if image.size != (width, height):
            image = image.resize((width, height), Resampling[self.interpolation.upper()])
        left, top = (width - self.size) // 2, (height - self.size) // 2
        if image.size == (self.size, self.size):
            return image
        return image.crop((left, top, left + self.size, top + self.size))

    def place(self, box: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[float, ...]:
        """Where a box in pixels of a photograph lies in the square, from 0 to 1: left, top, right, bottom."""
        to = self.resize_to or self.size
        factors = [to / side for side in size] if self.resize == "squash" else [to / min(size)] * 2
        offsets = [(max(to, round(side * f)) - self.size) // 2 for side, f in zip(size, factors, strict=True)]
        return tuple(
            min(1.0, max(0.0, (edge * factors[i % 2] - offsets[i % 2]) / self.size)) for i, edge in enumerate(box)
        )

    def seen(self, size: tuple[int, int]) -> tuple[int, int, int, int]:
        """The part of a photograph of that width and height that is in the square: left, top, right, bottom in pixels.

        Example:
            >>> Preprocessing(size=100, resize="shorter").seen((300, 200)), Preprocessing(size=100).seen((300, 200))
            ((50, 0, 250, 200), (0, 0, 300, 200))
        """
        to = self.resize_to or self.size
        factors = [to / side for side in size] if self.resize == "squash" else [to / min(size)] * 2
        starts = [(max(to, round(side * f)) - self.size) // 2 / f for side, f in zip(size, factors, strict=True)]
        left, top = (min(round(start), side - 1) for start, side in zip(starts, size, strict=True))
        ends = (start + self.size / f for start, f in zip(starts, factors, strict=True))
        right, bottom = (
            max(low + 1, min(side, round(e))) for low, side, e in zip((left, top), size, ends, strict=True)
        )
        return left, top, right, bottom

    def normalize(self, image: Image) -> Tensor:
        """Pixels as numbers: scaled, mean subtracted, divided by the deviation; shape (3, H, W)."""
        import numpy

        return self.to_values(torch.from_numpy(numpy.array(image))).movedim(-1, 0).contiguous()

    def to_values(self, pixels: Tensor) -> Tensor:
        """Bytes, shape (..., 3), as the network wants them: (scale x - mean) / std, in one pass over the numbers."""
        scale, shift = (
            torch.tensor(values, dtype=torch.float32, device=pixels.device)
            for values in (
                [self.pixel_max / 255 / std for std in self.std],
                [-mean / std for mean, std in zip(self.mean, self.std, strict=True)],
            )
        )
        values = pixels.to(torch.float32)
        return torch.addcmul(shift, values, scale, out=values)


def to_rgb(image: Image) -> Image:
    """Eight bits of red, green and blue; sixteen bits of grey are scaled, where Pillow would cut them off at 255."""
    import numpy
    from PIL.Image import Image as PillowImage
    from PIL.Image import fromarray

    if not isinstance(image, PillowImage):
        raise TypeError(
            f"preprocessing: expected a Pillow image, got {type(image).__name__}; open a file with PIL.Image.open, "
            "convert an array with PIL.Image.fromarray."
        )
    if image.mode == "RGB":
        return image
    if image.mode == "F":
        raise ValueError("preprocessing: expected an image of 8 or 16 bits, got floating-point numbers (mode F).")
    if image.mode.startswith("I"):
        grey = numpy.asarray(image).astype(numpy.int64).clip(0, 65535)
        wide = image.mode != "I" or grey.max(initial=0) > 255
        image = fromarray((grey // 257 if wide else grey).astype(numpy.uint8))
    if image.mode in ("P", "PA") and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns otherwise; the colours are the same
    return image.convert("RGB")


def open_image(path: Path) -> Image:
    """The photograph in a file, turned as its camera says, in RGB; the first one if there are several.

    Raises: OSError that names the file if it is broken, too large (by Pillow's bound against decompression bombs), no
        regular file, not there or not to be read.
    """
    return _decoded(path, str(path), None)


def decode_image(file: BinaryIO, name: str, max_pixels: int) -> Image:
    """The same from an open file, such as one that was sent; one of more pixels is refused before they are decoded."""
    return _decoded(file, name, max_pixels)


def _decoded(source: Path | BinaryIO, name: str, max_pixels: int | None) -> Image:
    import PIL.Image
    from PIL.ImageOps import exif_transpose

    _quiet_pillow()
    try:
        if isinstance(source, Path):
            check_file(source.stat())
        with PIL.Image.open(source, formats=[name for name in FORMATS if name in _known_formats()]) as image:
            if max_pixels is not None and image.width * image.height > max_pixels:
                raise OSError(f"{image.width} x {image.height} pixels; at most {max_pixels} in all are allowed")
            image.load()
            with suppress(Exception):  # whatever damaged EXIF data make happen: the picture is there nevertheless
                exif_transpose(image, in_place=True)  # turned even where what is left of the EXIF cannot be written
            return to_rgb(image.copy())
    except Exception as error:  # Pillow lets through whatever a damaged file makes happen
        if isinstance(error, OSError) and error.filename is not None:
            raise  # not there, not to be read: it names the file
        said = str(error) if isinstance(source, Path) else re.sub(" <.*>", "", str(error))
        got = said if type(error) is OSError else f"{type(error).__name__}: {said}"
        if type(error).__name__ == "UnidentifiedImageError":
            got = "something else, or the beginning is damaged"
        raise OSError(f"{name}: expected an image that Pillow can read, got {got}.") from None


def check_file(status: os.stat_result) -> None:
    """Refuse what would hang or fill the memory when it is read: pipes, devices, and files of gigabytes.

    Raises: OSError that says what it is.
    """
    if not stat.S_ISREG(status.st_mode):
        raise OSError("a folder, a pipe or a device")
    if status.st_size > MAX_BYTES:
        raise OSError(f"a file of {amount(status.st_size)}, where {amount(MAX_BYTES)} are the most")


@cache
def _known_formats() -> frozenset[str]:
    """What this Pillow can read; AVIF and others depend on how it was built."""
    import PIL.Image

    PIL.Image.init()
    return frozenset(PIL.Image.OPEN)


def _quiet_pillow() -> None:
    """No Python warnings about large images and damaged EXIF data, unless the caller has a rule for them.

    `warnings.catch_warnings` would not do: it is not safe among threads.
    """
    from PIL.Image import DecompressionBombWarning

    if not any(rule[2] is DecompressionBombWarning for rule in warnings.filters):
        warnings.filterwarnings("ignore", category=DecompressionBombWarning)
        warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.TiffImagePlugin")
