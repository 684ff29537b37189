"""One file per matrix function: g, g', divided differences, and the public wrapper."""

from ..contract import SpectralFunction
from .logm import LOG
from .powm import POWER
from .sqrtm import SQRT

FUNCTIONS: dict[str, SpectralFunction] = {
    "sqrt": SQRT,
    "log": LOG,
    "power": POWER,
}
