"""Parts that work on images before the networks see them; one file per front, registered here."""

from ..parts.registry import Registry

FRONTS = Registry("front", "name(option=value)", {})
