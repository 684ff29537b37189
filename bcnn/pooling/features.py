r"""Feature maps, sequences and tokens as columns x_i of a matrix X, and the ridge that goes with them.

Paper: Sec. 2.1, "features x_i across locations i = 1, ..., n".

Legend: X features in columns (B, d, n), divided by sqrt(n), so that A = X X^T + ridge I; n locations; d channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Real

import torch
from torch import Tensor

from ..errors import NotFiniteError, unknown_name
from ..linalg.autodiff import check_values, should_check
from ..linalg.operand import Factored
from ..linalg.spectrum import widest

LAYOUTS = ("maps", "tokens")  # (B, d, locations...), (B, n, d)
EPS_SCALES = ("trace", "largest", "absolute")

# Below this no ridge falls, so that the logarithm of a black image has a value: far below that of any real image.
MIN_RIDGE = 1e-10


def check_layout(who: str, layout: str) -> None:
    """Raise unless `layout` is one of `LAYOUTS`."""
    if layout not in LAYOUTS:
        raise unknown_name(who, "layout", layout, LAYOUTS)


def check_eps(who: str, eps: float, eps_scale: str) -> None:
    """Raise unless `eps` is a finite number >= 0 and `eps_scale` one of `EPS_SCALES`."""
    if eps_scale not in EPS_SCALES:
        raise unknown_name(who, "eps_scale", eps_scale, EPS_SCALES)
    if isinstance(eps, bool) or not isinstance(eps, Real) or not 0 <= eps < float("inf"):
        raise ValueError(
            f"{who}: expected `eps` to be a number >= 0, got {eps!r}; the paper's is 1e-6 of the largest eigenvalue."
        )


def check_features(who: str, features: Tensor, layout: str) -> None:
    """Raise unless `features` are a batch in the given layout, with at least one channel and one location."""
    check_layout(who, layout)
    if not isinstance(features, Tensor):
        raise TypeError(f"{who}: expected `features` to be a torch.Tensor, got {type(features).__name__}.")
    if not features.is_floating_point():
        raise TypeError(f"{who}: expected floating-point `features`, got {features.dtype}; convert with .float().")
    right = features.ndim == 3 if layout == "tokens" else features.ndim >= 3
    if not right or 0 in features.shape[1:]:
        expected = "(B, N, C)" if layout == "tokens" else "(B, C, H, W) or (B, C, L)"
        raise ValueError(
            f"{who}: expected `features` of shape {expected}, none of C and the locations zero, got "
            f"{tuple(features.shape)}; pass layout='tokens' for a transformer's (B, N, C), unsqueeze(0) for one image."
        )


def grid_of(features: Tensor, layout: str) -> Sequence[int]:
    """The shape of the locations: (H, W), (L,) or (N,)."""
    return features.shape[1:2] if layout == "tokens" else features.shape[2:]


def as_columns(
    who: str, features: Tensor, *, layout: str = "maps", mask: Tensor | None = None, squares: bool = True
) -> Tensor:
    """X of shape (B, d, n), in float32 at least, divided by the root of the number of valid locations.

    Args:
        who: the caller, as errors name it.
        features: (B, C, H, W) or (B, C, L) for layout "maps", (B, N, C) for "tokens".
        layout: one of `LAYOUTS`.
        mask: True where a location is valid, shape (B, H, W), (B, L) or (B, N); the values elsewhere are never read.
            An image without a valid location counts as black.
        squares: whether the squares have to be finite as well, which a second-order pooling needs.
    """
    check_features(who, features, layout)
    columns = features.mT if layout == "tokens" else features.flatten(2)
    X = columns.to(torch.promote_types(features.dtype, torch.float32))
    if mask is None:
        X = X * X.shape[-1] ** -0.5
    else:
        valid = _flat_mask(who, mask, features, layout)
        X = X.masked_fill(~valid[:, None, :], 0) * valid.sum(-1).clamp_min(1)[:, None, None].to(X.dtype).rsqrt()
    if should_check(None, X):
        check_values(partial(_check_finite, who, squares), X)
    return X


def ridge_of(pooled: Tensor | Factored, *, eps: float, eps_scale: str) -> Tensor | None:
    r"""What is added to the diagonal, one number per image, shape (B,), differentiable; None where eps is 0.

    "trace" is :math:`\epsilon \, \mathrm{tr}(X X^T)`, epsilon times the mean squared length of the features: it follows
    the scale of the network, whatever its weights and pixels. "largest" is epsilon times the largest eigenvalue of
    X X^T, a constant to the gradient: the paper's ridge, 1 where that eigenvalue is about 10^6 (Sec. 3.2), is
    epsilon = 10^-6 in these units. "absolute" is epsilon itself.

    Args:
        pooled: X X^T without a ridge, formed (B, d, d) or not.
        eps: how much.
        eps_scale: of what.
    """
    if eps == 0:
        return None
    values = pooled.X if isinstance(pooled, Factored) else pooled
    if eps_scale == "absolute":
        return values.new_full(values.shape[:-2], eps)
    if eps_scale == "largest":
        wide = values.detach().to(widest(values))
        if isinstance(pooled, Factored):
            wide = wide.mT @ wide if wide.shape[-1] < wide.shape[-2] else wide @ wide.mT
        size = torch.linalg.eigvalsh(wide)[..., -1]
        return torch.mul(size, eps).clamp_min(MIN_RIDGE).to(values.dtype)
    trace: Tensor = (
        values.square().sum((-2, -1)) if isinstance(pooled, Factored) else values.diagonal(dim1=-2, dim2=-1).sum(-1)
    )
    return (eps * trace).clamp_min(MIN_RIDGE)


def _flat_mask(who: str, mask: Tensor, features: Tensor, layout: str) -> Tensor:
    expected = (features.shape[0], *grid_of(features, layout))
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or tuple(mask.shape) != expected:
        got = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"{who}: expected `mask` to be a boolean tensor of shape {expected}, True where valid, got {got}; "
            "resize it to the features' grid, not the image's."
        )
    return mask.flatten(1)


def _check_finite(who: str, squares: bool, X: Tensor) -> None:
    # A sum is enough: infinities and NaN survive it, and it reads X once.
    bad = ~(X.square() if squares else X).sum((-2, -1)).isfinite()
    if bad.any():
        raise NotFiniteError(
            f"{who}: expected finite `features` and sums, got infinite or NaN ones (beyond {X.dtype}) in "
            f"{int(bad.sum())} of {bad.numel()} images; look for overflow (float16?) or a diverging loss upstream."
        )
