"""Pooling and normalization of CNN features (Sec. 2.1 of the paper); one file per pooling, registered here."""

from .asymmetric import asymmetric_pool
from .average import average_pool
from .bilinear import bilinear_factor, bilinear_pool
from .contract import Pooling

POOLINGS: dict[str, Pooling] = {
    "bilinear": Pooling(bilinear_pool, symmetric=True, factor=bilinear_factor),  # Eq. (1)
    "asymmetric": Pooling(asymmetric_pool, num_inputs=2),
    "average": Pooling(average_pool, matrix=False),
}
