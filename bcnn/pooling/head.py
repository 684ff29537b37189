r"""From features to descriptor: pooling, then normalizations in order.

Paper: Figure 1 without the network and the classifier. The presets are the rows of Table 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import unknown_name
from ..linalg.autodiff import full_precision
from ..matfun.forward import FORWARDS
from ..matfun.modules import MatrixFunction
from ..matfun.plan import resolve_auto
from . import POOLINGS, thin
from .bilinear import DEFAULT_EPS, pooled_matrix
from .features import check_eps, check_layout
from .normalize import NORMALIZATIONS, make_normalization, parse
from .triangle import entries, multiplicity

PAPERS_EPS = 1e-6  # of the largest eigenvalue: epsilon = 1 where that is about 10^6 (Sec. 3.2)


@dataclass(frozen=True)
class HeadConfig:
    """Everything that makes a head, as plain data."""

    pooling: str = "bilinear"
    normalize: tuple[str, ...] = ("matrix_sqrt", "signed_sqrt", "l2")
    eps: float = DEFAULT_EPS  # of bilinear pooling
    eps_scale: str = "trace"
    layout: str = "maps"
    triangle: bool = True  # keep the upper triangle of symmetric matrices
    thin: bool | None = None  # None: where it is faster


PRESETS: dict[str, HeadConfig] = {
    "average": HeadConfig(pooling="average", normalize=("l2",)),  # first order, the baseline
    "bcnn": HeadConfig(normalize=("signed_sqrt", "l2"), eps=0.0),  # Lin et al. 2015; Table 1, sgnsqrt(A)
    "improved_bcnn": HeadConfig(normalize=("matrix_sqrt", "signed_sqrt", "l2")),  # Table 1, A^(1/2) and sgnsqrt
    "o2p": HeadConfig(normalize=("matrix_log", "l2"), eps=3e-3),  # Carreira et al. 2012; Table 1, log(A)
}


class Head(nn.Module):
    """The module from features to descriptor.

    Paper: Sec. 2.1, Figure 1.

    Args:
        preset: a name of `PRESETS`, or a `HeadConfig`; the options below change single parts of it.
        pooling: a name of `POOLINGS`.
        normalize: normalizations in order, as text (`bcnn.pooling.normalize`).
        eps: the ridge of Eq. (1); 0 for none.
        eps_scale: "trace" (relative to the mean squared length of the features), "largest" (relative to the largest
            eigenvalue; the paper's ridge is 1e-6 of it) or "absolute".
        layout: "maps" for (B, C, H, W) and (B, C, L), "tokens" for (B, N, C).
        triangle: keep the upper triangle of a symmetric matrix, scaled so that inner products stay: half the memory.
        thin: whether to go through the n x n Gram matrix where a matrix function follows bilinear pooling and n < d;
            None does so where it is faster and the function's methods are left to choose themselves.

    Example:
        >>> head = Head("improved_bcnn")
        >>> head(torch.rand(2, 8, 5, 5)).shape, head.num_features(8)
        (torch.Size([2, 36]), 36)
        >>> head.config.normalize
        ('matrix_sqrt', 'signed_sqrt', 'l2')
    """

    def __init__(self, preset: str | HeadConfig = "improved_bcnn", **options: Any):
        super().__init__()
        self.config = make_config(preset, **options)
        self.normalizations = nn.ModuleList(make_normalization(text) for text in self.config.normalize)
        kinds = [NORMALIZATIONS[parse(text)[0]] for text in self.config.normalize]
        self._kinds = kinds
        self._num_matrix = max((i + 1 for i, kind in enumerate(kinds) if kind.matrix), default=0)
        _check_composition(self.config, [kind.matrix for kind in kinds])
        if self.config.thin and not self._may_be_thin:
            raise ValueError(
                "head: expected thin=True with bilinear pooling, eps > 0 and a matrix function first, its methods not "
                f"named, got {self.config}."
            )

    def forward(self, features: Tensor, other: Tensor | None = None, *, mask: Tensor | None = None) -> Tensor:
        """Descriptors, shape (B, `num_features`), in float32 (float64 for float64 features).

        Args:
            features: in the head's layout.
            other: the second features, for asymmetric pooling.
            mask: True where a location is valid, shape (B, H, W), (B, L) or (B, N).
        """
        with full_precision(features):
            matrix, start = self._pool(features, other, mask)
            return self._normalize(matrix, start, least_eigenvalue(self.config, matrix.shape[-1]))

    def normalize_matrix(self, matrix: Tensor) -> Tensor:
        """Descriptors of matrices (B, d, d) that are pooled already, such as stored ones; of vectors, after averages.

        As in `forward`, half precision is computed in float32.
        """
        pooling = POOLINGS[self.config.pooling]
        right = matrix.ndim == (3 if pooling.matrix else 2)
        if not right or (pooling.symmetric and matrix.shape[-1] != matrix.shape[-2]):
            expected = "(B, d, d)" if pooling.symmetric else "(B, d, e)" if pooling.matrix else "(B, d)"
            raise ValueError(f"head: expected pooled features of shape {expected}, got {tuple(matrix.shape)}.")
        with full_precision(matrix):
            return self._normalize(matrix.to(torch.promote_types(matrix.dtype, torch.float32)), 0)

    def num_features(self, num_channels: int, other_channels: int | None = None) -> int:
        """The length of a descriptor, given the channels of the features."""
        pooling = POOLINGS[self.config.pooling]
        if not pooling.matrix:
            return num_channels
        if pooling.symmetric and self.config.triangle:
            return num_channels * (num_channels + 1) // 2
        return num_channels * (other_channels or num_channels)

    def extra_repr(self) -> str:
        """Every option that is not a module of its own."""
        options = asdict(self.config)
        del options["normalize"]
        return ", ".join(f"{name}={value!r}" for name, value in options.items())

    # --- the stages ---------------------------------------------------------------------------------------------------

    @property
    def _may_be_thin(self) -> bool:
        """A factor with a ridge, then a matrix function whose methods are left open."""
        has_ridge = POOLINGS[self.config.pooling].factor is not None and self.config.eps > 0
        if not has_ridge or not self._kinds or not self._kinds[0].matrix:
            return False
        first = self.normalizations[0]
        assert isinstance(first, MatrixFunction)
        return first.open_methods

    def _pool(self, features: Tensor, other: Tensor | None, mask: Tensor | None) -> tuple[Tensor, int]:
        """The pooled matrix or vector and 0; or, on the thin path, the first normalization done as well, and 1."""
        config, pooling = self.config, POOLINGS[self.config.pooling]
        if (other is not None) != (pooling.num_inputs == 2):
            raise ValueError(f"head: pooling {config.pooling!r} takes {pooling.num_inputs} features; check `other`.")
        inputs = (features,) if other is None else (features, other)
        options = {name: getattr(config, name) for name in pooling.options}
        if pooling.factor is None:
            return pooling.fn(*inputs, layout=config.layout, mask=mask, **options), 0
        X, ridge = pooling.factor(*inputs, layout=config.layout, mask=mask, **options)
        if self._use_thin(X):
            first = self.normalizations[0]
            assert isinstance(first, MatrixFunction)
            return thin.thin_matrix_function(first.function, X, ridge, getattr(first, "p", None)), 1
        return pooled_matrix(X, ridge), 0

    def _use_thin(self, X: Tensor) -> bool:
        if torch.compiler.is_compiling():  # the compiler takes no Function with rules for torch.func
            return False
        if self.config.thin is not None:  # with n >= d nothing is gained, and the ridge's gradient would cancel
            return self.config.thin and X.shape[-1] < X.shape[-2]
        return self._may_be_thin and thin.pays_off(X)

    def _stages(self, start: int, stop: int) -> list[tuple[nn.Module, Any]]:
        return list(zip(self.normalizations, self._kinds, strict=True))[start:stop]

    def _normalize(self, matrix: Tensor, start: int, lower: float | None = None) -> Tensor:
        """From normalization number `start` on; `lower` is what is known of the pooled matrix's spectrum."""
        for i, (module, kind) in enumerate(self._stages(start, self._num_matrix), start):
            if isinstance(module, MatrixFunction):
                known = lower if i == 0 else None
                matrix = module(matrix, **methods_for(module, matrix.device.type, matrix.shape[-1], known))
            else:
                matrix = _globally(module, matrix) if kind.weighted else module(matrix)
        return self._finish(matrix)

    def _finish(self, matrix: Tensor) -> Tensor:
        """From the last matrix function on, entries alone: of a symmetric matrix, half of them are enough."""
        weights = None
        if POOLINGS[self.config.pooling].symmetric and self.config.triangle:
            weights = multiplicity(matrix.shape[-1], matrix)
            x = entries(matrix)
        else:
            x = matrix.flatten(1)
        for module, kind in self._stages(self._num_matrix, len(self._kinds)):
            x = module(x, weights) if kind.weighted else module(x)
        return x if weights is None else x * weights.sqrt()


def describe(
    features: Tensor,
    preset: str | HeadConfig = "improved_bcnn",
    *,
    other: Tensor | None = None,
    mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Descriptors of features in one call: ``Head(preset, **options)(features, other, mask=mask)``.

    Example:
        >>> describe(torch.rand(2, 6, 7), "bcnn").shape
        torch.Size([2, 21])
    """
    return Head(preset, **options)(features, other, mask=mask)


def make_config(preset: str | HeadConfig, **options: Any) -> HeadConfig:
    """A preset with some of its fields changed, all of them checked; None leaves a field as it is."""
    if not isinstance(preset, HeadConfig):
        if preset not in PRESETS:
            raise unknown_name("head", "preset", preset, PRESETS)
        preset = PRESETS[preset]
    for name in options:
        if name not in HeadConfig.__dataclass_fields__:
            raise unknown_name("head", "option", name, HeadConfig.__dataclass_fields__)
    changes = {name: value for name, value in options.items() if value is not None}
    normalize = changes.get("normalize", ())
    if isinstance(normalize, str):
        changes["normalize"] = (normalize,)
    elif "normalize" in changes:
        if not isinstance(normalize, Sequence) or not all(isinstance(text, str) for text in normalize):
            raise ValueError(f"head: expected `normalize` to be text or a list of texts, got {normalize!r}.")
        changes["normalize"] = tuple(normalize)
    config = replace(preset, **changes)
    if config.pooling not in POOLINGS:
        raise unknown_name("head", "pooling", config.pooling, POOLINGS)
    for name in ("eps", "eps_scale"):
        if name in changes and name not in POOLINGS[config.pooling].options:
            raise ValueError(f"head: expected no `{name}` with {config.pooling!r} pooling, which does not take it.")
    for name in ("triangle", "thin"):
        if not isinstance(getattr(config, name), bool | None):
            raise ValueError(f"head: expected `{name}` to be True or False, got {getattr(config, name)!r}.")
    check_layout("head", config.layout)
    check_eps("head", config.eps, config.eps_scale)
    return replace(config, eps=float(config.eps))


def least_eigenvalue(config: HeadConfig, d: int) -> float | None:
    r"""A bound of the least eigenvalue of A over its Frobenius norm, if the ridge gives one.

    With t the mean squared length of the features, A = B + eps t I and ||B||_F <= tr B = t, so that
    :math:`\lambda_{min} / \|A\|_F \ge \epsilon / (1 + \epsilon \sqrt d)`.
    """
    if config.eps_scale != "trace" or not config.eps or "eps" not in POOLINGS[config.pooling].options:
        return None
    return config.eps / (1 + config.eps * d**0.5)


def methods_for(module: MatrixFunction, device: str, d: int, lower: float | None) -> dict[str, Any]:
    """The options that a head chooses for a matrix function whose methods are left open.

    Where products take the place of a decomposition, they are told how far down the spectrum goes, which saves two
    fifths of them and most of the error.
    """
    if not module.open_methods:
        return {}
    forward, _ = resolve_auto(module.function.name, device, d)
    if not FORWARDS[forward].for_accelerators or lower is None or lower < 16 * torch.finfo(torch.float32).eps:
        return {}
    return {"lower": lower, "solver_lower": lower**0.5}


def _check_composition(config: HeadConfig, is_matrix: Sequence[bool]) -> None:
    if any(is_matrix) and not POOLINGS[config.pooling].symmetric:
        symmetric = ", ".join(name for name, pooling in POOLINGS.items() if pooling.symmetric)
        raise ValueError(
            f"head: expected normalizations of entries after {config.pooling!r} pooling, got {config.normalize}; "
            f"matrix functions need one of: {symmetric}."
        )


def _globally(module: nn.Module, matrix: Tensor) -> Tensor:
    return module(matrix.flatten(1)).view_as(matrix)
