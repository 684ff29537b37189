"""From descriptors or pooled matrices to the scores of the classes; one file per scorer, registered here."""

from ..parts.registry import Part, Registry
from .linear import LinearScorer

SCORERS = Registry(
    "scorer", "linear", {"linear": Part(LinearScorer, "a linear classifier on descriptors, the paper's")}
)
