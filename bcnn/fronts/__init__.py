"""Parts that work on images before the networks see them; one file per front, registered here."""

from ..parts.registry import Part, Registry
from .foreground import Foreground
from .stn import SpatialTransformers

FRONTS = Registry(
    "front",
    "foreground(margin=0.1)",
    {
        "foreground": Part(Foreground, "the object cut out of the image, as boxes of training images have taught it"),
        "stn": Part(SpatialTransformers, "spatial transformers: crops at places that are learned"),
    },
)
