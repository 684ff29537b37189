"""Pooling and normalization of CNN features (Sec. 2.1 of the paper); one file per pooling, registered here."""

from ..parts.registry import Part, Registry
from .asymmetric import AsymmetricPool
from .average import AveragePool
from .bilinear import BilinearPool

POOLINGS = Registry(
    "pooling",
    "bilinear(eps=0.001)",
    {
        "bilinear": Part(BilinearPool, "second-order statistics of one network's features, Eq. (1)"),
        "asymmetric": Part(AsymmetricPool, "the mean outer product of two networks' features"),
        "average": Part(AveragePool, "the mean feature: first order, the baseline"),
    },
)
