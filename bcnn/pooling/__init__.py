"""Pooling and normalization of CNN features (Sec. 2.1 of the paper); one file per pooling, registered here."""

from ..parts.registry import Part, Registry
from .asymmetric import AsymmetricPool
from .average import AveragePool
from .bilinear import BilinearPool
from .covariance import CovariancePool
from .cross_covariance import CrossCovariancePool
from .democratic import DemocraticPool
from .dropcov import DropCovPool
from .fisher import FisherPool
from .kernel import KernelPool
from .moments import MomentPool
from .netvlad import NetVladPool
from .pd_swfv import PickedFisherPool
from .vlad import VladPool

POOLINGS = Registry(
    "pooling",
    "bilinear(eps=0.001)",
    {
        "bilinear": Part(BilinearPool, "second-order statistics of one network's features, Eq. (1)"),
        "asymmetric": Part(AsymmetricPool, "the mean outer product of two networks' features"),
        "covariance": Part(CovariancePool, "the covariance of the features: MPN-COV, iSQRT-COV"),
        "moments": Part(MomentPool, "mean and second moments in one matrix: G2DeNet, MoNet"),
        "dropcov": Part(DropCovPool, "the covariance, with adaptive channel dropout in training"),
        "cross_covariance": Part(CrossCovariancePool, "the mean, and cross-covariances of narrow learned projections"),
        "kernel": Part(KernelPool, "sketches of all orders up to p, started from the Gaussian kernel"),
        "average": Part(AveragePool, "the mean feature: first order, the baseline"),
        "democratic": Part(DemocraticPool, "second-order statistics in which frequent features do not outvote others"),
        "fisher": Part(FisherPool, "Fisher vectors: how a mixture of Gaussians would change for an image"),
        "vlad": Part(VladPool, "differences between features and the nearest word, summed word by word"),
        "netvlad": Part(NetVladPool, "VLAD with soft assignments that learn"),
        "pd_swfv": Part(PickedFisherPool, "a Fisher vector that looks where mined part detectors respond"),
    },
)
