r"""Kernel pooling: sketches of all orders up to p, weighed as in the Taylor series of a kernel.

.. math:: \phi = \frac1n \sum_i \big[ \alpha_0; \; \alpha_1 x_i; \; \alpha_2 \mathrm{TS}_2(x_i); \; \dots; \;
    \alpha_p \mathrm{TS}_p(x_i) \big]

with features of length 1 and TS_k the Tensor Sketch of order k, the product of k count sketches in the Fourier domain.
The weights start at those of the Gaussian kernel,

.. math:: e^{-\gamma \|x - y\|^2} = \sum_k \alpha_k^2 \langle x, y \rangle^k, \qquad
    \alpha_k^2 = e^{-2 \gamma} \frac{(2 \gamma)^k}{k!}

with gamma the reciprocal of the mean inner product of two features of a training image, and are learned.

Reference: Cui et al., *Kernel pooling for convolutional neural networks*, CVPR 2017 (p = 4, width 4096: 12,801 numbers
for 512 channels; then signed square root and l2). Paper: the row KP of Table 4.

Departures: all orders share their first count sketches, which costs p FFTs per location and not p (p + 1) / 2 - 1;
every order by itself is the sketch of the literature.

Legend: X features in columns (B, d, n); D width of a sketch; p the highest order.
"""

from __future__ import annotations

import math
from numbers import Real

import torch
from torch import Tensor, nn

from ..parts.fitting import Batches, FittedPart
from ..parts.shapes import Shape, Vector, expect_maps
from .contract import Pooling
from .features import as_columns
from .tensor_sketch import check_width, count_sketch, fourier, inverse_fourier, random_integers, random_signs

# A feature much shorter than this share of the root mean square length in its image, or than this length, stays near
# zero: the derivative of x / |x| is finite.
LEAST_SHARE = 1e-4
LEAST_LENGTH = 1e-6


def unit_columns(who: str, features: Tensor, layout: str, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Features of length 1 in rows, (B, n, d), and the share of each in the mean, (B, n); zero outside the mask."""
    X = as_columns(who, features, layout=layout, mask=mask)  # divided by sqrt(n)
    valid = None if mask is None else mask.flatten(1).to(X.dtype)
    count = X.new_full((X.shape[0],), X.shape[-1]) if valid is None else valid.sum(-1).clamp_min(1)
    mean_square = X.square().sum((-2, -1))[:, None, None]
    rows = X.mT * count[:, None, None].sqrt()
    floor = LEAST_SHARE**2 * mean_square + LEAST_LENGTH**2
    rows = rows * (rows.square().sum(-1, keepdim=True) + floor).rsqrt()
    shares = torch.ones_like(rows[..., 0]) if valid is None else valid
    return rows, shares / count[:, None]


def gaussian_weights(gamma: float, order: int) -> Tensor:
    """``alpha_k`` of the Gaussian kernel, shape (order + 1,), in float64.

    Example:
        >>> round(gaussian_weights(0.5, 60).square().sum().item(), 6)  # the kernel of a feature with itself
        1.0
    """
    logs = [-2 * gamma + k * math.log(2 * gamma) - math.lgamma(k + 1) for k in range(order + 1)]
    return torch.tensor(logs, dtype=torch.float64).div(2).exp()


class KernelPool(Pooling, FittedPart):
    """Kernel pooling as a part; its gamma is found on training images, unless it is given.

    Args:
        width: of the sketch of every order from 2 on, D.
        order: the highest, p; at least 1.
        gamma: of the Gaussian kernel at the start; None: the reciprocal of the mean inner product of two features of a
            training image.
        seed: of the hashes and signs, which are saved with the network.
    """

    places: Tensor
    signs: Tensor
    gamma: Tensor

    def __init__(
        self, inputs: tuple[Shape, ...], width: int = 4096, *, order: int = 4, gamma: float | None = None, seed: int = 0
    ):
        super().__init__()
        (maps,) = expect_maps("kernel", inputs, 1)
        self.width, self.order = check_width("kernel", width), check_width("kernel", order, "order")
        self.seed = seed
        generator = torch.Generator().manual_seed(seed)
        shape = (self.order, maps.channels)
        self.register_buffer("places", random_integers(self.width, *shape, generator=generator))
        self.register_buffer("signs", random_signs(*shape, generator=generator))
        self.register_buffer("gamma", torch.tensor(1.0))
        self.alpha = nn.Parameter(torch.ones(self.order + 1))
        if gamma is not None:
            if isinstance(gamma, bool) or not isinstance(gamma, Real) or not 0 < gamma < float("inf"):
                raise ValueError(f"kernel: expected `gamma` to be a number > 0 or None, got {gamma!r}.")
            self._start(float(gamma))

    def shape(self, *inputs: Shape) -> Vector:
        """The result has 1 + d + (p - 1) D numbers."""
        (maps,) = expect_maps("kernel", inputs, 1)
        return Vector(1 + maps.channels + (self.order - 1) * self.width)

    def fit(self, batches: Batches) -> None:
        """Gamma from the mean over images of the mean inner product of their features, all pairs counted."""
        total, count = 0.0, 0
        for (features,) in batches():
            rows, shares = unit_columns("kernel", features, "maps", None)
            means = (rows * shares[..., None]).sum(1).double()
            total, count = total + float(means.square().sum()), count + len(means)
        if count and total <= 0:
            raise ValueError(
                "kernel: expected training images whose features are not all zero, got none; give `gamma`."
            )
        self._start(count / total if count else 1.0)

    @torch.no_grad()
    def _start(self, gamma: float) -> None:
        self.gamma.fill_(gamma)
        self.alpha.copy_(gaussian_weights(gamma, self.order))
        self.mark_fitted()

    def forward(self, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None) -> Tensor:
        """The mean feature of the kernel, shape (B, 1 + d + (p - 1) D)."""
        self.check_fitted()
        rows, shares = unit_columns("kernel_pool", features, layout, mask)
        weights = self.alpha.to(rows.dtype)
        orders = [weights[0].expand(rows.shape[0], 1), weights[1] * (rows * shares[..., None]).sum(1)]
        spectrum = shares[..., None]
        for k, (places, signs) in enumerate(zip(self.places, self.signs, strict=True), start=1):
            if self.order == 1:
                break
            spectrum = spectrum * fourier(count_sketch(rows, places, signs, self.width))
            if k > 1:
                orders.append(weights[k] * inverse_fourier(spectrum.sum(1), self.width))
        return torch.cat(orders, -1)

    def extra_repr(self) -> str:
        """Show every option, and gamma as it was found."""
        gamma = "?" if self.gamma.is_meta or not bool(self.fitted) else f"{float(self.gamma):g}"
        return f"width={self.width}, order={self.order}, gamma={gamma}, seed={self.seed}"
