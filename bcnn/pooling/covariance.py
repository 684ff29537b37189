r"""Covariance pooling: bilinear pooling of features from which the mean of the image is taken away.

.. math:: \Sigma = \frac1n \sum_i (x_i - \mu)(x_i - \mu)^T + \epsilon I = X J X^T + \epsilon I

References: Li et al., *Is second-order information helpful for large-scale visual recognition?* (MPN-COV), ICCV 2017:
the eigenvalues to the power 1/2, which is ``matrix_sqrt``; Li et al., *Towards faster training of global covariance
pooling networks* (iSQRT-COV), CVPR 2018: five steps of Newton and Schulz of Sigma divided by its trace, which is the
preset ``isqrt_cov``. Both reduce the channels to 256 or 128 first (``proj_dim=256``, here without their batch
normalization and ReLU), and take the upper triangle without an entrywise root and without l2.

Legend: X features in columns (B, d, n), divided by sqrt(n); J takes the mean away.
"""

from __future__ import annotations

from torch import Tensor

from ..linalg.operand import Factored
from ..parts.shapes import Shape, Spd, expect_maps
from .bilinear import DEFAULT_EPS
from .contract import Pooling
from .features import as_columns, check_eps, ridge_of


def centred_columns(who: str, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
    """`as_columns` without the mean of each image: zero outside the mask, shape (B, d, n)."""
    X = as_columns(who, features, layout=layout, mask=mask)
    if mask is None:
        return X - X.mean(-1, keepdim=True)
    valid = mask.flatten(1)[:, None, :].to(X.dtype)
    return X - X.sum(-1, keepdim=True) / valid.sum(-1, keepdim=True).clamp_min(1) * valid


class CovariancePool(Pooling):
    """The covariance of the features, not formed before somebody needs it.

    Args:
        eps: the ridge, in units of eps_scale; 0 for none.
        eps_scale: trace, largest or absolute, as in bilinear pooling.
    """

    def __init__(self, eps: float = DEFAULT_EPS, eps_scale: str = "trace"):
        super().__init__()
        check_eps("covariance", eps, eps_scale)
        self.eps, self.eps_scale = float(eps), eps_scale

    def shape(self, *inputs: Shape) -> Spd:
        """The result is a d x d matrix for d channels."""
        (maps,) = expect_maps("covariance", inputs, 1)
        return Spd(maps.channels)

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Factored:
        """Return X J and the ridge, shapes (B, d, n) and (B,)."""
        A = Factored(centred_columns("covariance_pool", features, layout=layout, mask=mask), None)
        return Factored(A.X, ridge_of(A, eps=self.eps, eps_scale=self.eps_scale))

    @property
    def has_ridge(self) -> bool:
        """Whether a ridge is added: it is, unless eps is 0."""
        return self.eps > 0

    def extra_repr(self) -> str:
        """Show the ridge."""
        return f"eps={self.eps:g}, eps_scale={self.eps_scale!r}"
