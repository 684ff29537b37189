"""Shares of regions as colours on a photograph: warm where they speak for the class, cold where against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from ..data.preprocess import Preprocessing

if TYPE_CHECKING:
    from PIL.Image import Image

FOR, AGAINST = (255, 120, 0), (0, 110, 255)  # orange and blue, which colour-blind eyes tell apart
STRENGTH = 0.75  # of the colour where it is strongest
STRONGEST = 0.99  # the quantile of the shares that is shown at full strength


def overlay(photograph: Image, shares: numpy.ndarray, preprocessing: Preprocessing) -> Image:
    """The photograph in grey with the regions in colour; what the network did not see is dark.

    Args:
        photograph: in RGB, of any size.
        shares: of the score, by location, shape (h, w).
        preprocessing: which part of the photograph the locations cover.
    """
    from PIL.Image import Resampling, fromarray

    left, top, right, bottom = preprocessing.seen(photograph.size)
    strength = numpy.zeros((photograph.height, photograph.width), numpy.float32)
    largest = float(numpy.quantile(numpy.abs(shares), STRONGEST))
    if largest > 0:
        small = fromarray((shares / largest).astype(numpy.float32))
        inside = numpy.asarray(small.resize((right - left, bottom - top), Resampling.BICUBIC))
        strength[top:bottom, left:right] = inside.clip(-1, 1)
    grey = numpy.asarray(photograph.convert("L"), numpy.float32)
    unseen = numpy.ones_like(grey)
    unseen[top:bottom, left:right] = 0
    base = (grey * (1 - 0.6 * unseen))[..., None]
    colour = numpy.where(strength[..., None] > 0, numpy.array(FOR), numpy.array(AGAINST))
    amount = STRENGTH * numpy.abs(strength)[..., None]
    return fromarray((base * (1 - amount) + colour * amount).clip(0, 255).astype(numpy.uint8))


def side_by_side(photograph: Image, shares: numpy.ndarray, preprocessing: Preprocessing) -> Image:
    """The photograph, and beside it the same with its regions."""
    from PIL.Image import new

    both = new("RGB", (2 * photograph.width, photograph.height))
    both.paste(photograph, (0, 0))
    both.paste(overlay(photograph, shares, preprocessing), (photograph.width, 0))
    return both
