"""From descriptors or pooled matrices to the scores of the classes; one file per scorer, registered here."""

from ..parts.registry import Part, Registry
from .linear import LinearScorer
from .lrbp import LowRankScorer

SCORERS = Registry(
    "scorer",
    "linear",
    {
        "linear": Part(LinearScorer, "a linear classifier on descriptors, the paper's"),
        "lrbp": Part(LowRankScorer, "low-rank bilinear pooling: classifiers of low rank, the matrix is never formed"),
    },
)
