r"""From features to descriptor: pooling, then normalizations in order.

Paper: Figure 1 without the network and the classifier. The presets are the rows of Table 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile, zip_longest
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import unknown_name
from ..linalg.autodiff import full_precision
from ..linalg.operand import Decomposed, Factored, formed
from ..matfun.modules import MatrixFunction
from ..matfun.thin_factor import Applied
from ..parts.registry import Registry
from ..parts.shapes import Maps, Matrix, Shape, Spd, Vector
from . import POOLINGS
from .contract import Pooling
from .features import check_layout
from .normalize import NORMALIZATIONS
from .triangle import entries, multiplicity

PAPERS_EPS = 1e-6  # of the largest eigenvalue: epsilon = 1 where that is about 10^6 (Sec. 3.2)


@dataclass(frozen=True)
class HeadConfig:
    """Everything that makes a head, as plain data."""

    pooling: str = "bilinear"
    normalize: tuple[str, ...] = ("matrix_sqrt", "signed_sqrt", "l2")
    layout: str = "maps"
    triangle: bool = True  # keep the upper triangle of symmetric matrices


PRESETS: dict[str, HeadConfig] = {
    "average": HeadConfig("average", ("l2",)),  # first order, the baseline
    "bcnn": HeadConfig("bilinear(eps=0)", ("signed_sqrt", "l2")),  # Lin et al. 2015; Table 1, sgnsqrt(A)
    "improved_bcnn": HeadConfig("bilinear", ("matrix_sqrt", "signed_sqrt", "l2")),  # Table 1, A^(1/2) and sgnsqrt
    "o2p": HeadConfig("bilinear(eps=0.003)", ("matrix_log", "l2")),  # Carreira et al. 2012; Table 1, log(A)
    # Other systems of Table 4, and after it: docs/systems_sketches.md.
    "cbp": HeadConfig("bilinear(eps=0)", ("tensor_sketch", "signed_sqrt", "l2")),
    "cbp_sqrt": HeadConfig("bilinear", ("matrix_sqrt", "tensor_sketch", "signed_sqrt", "l2")),
    "kernel": HeadConfig("kernel", ("signed_sqrt", "l2")),
    "mpn_cov": HeadConfig("covariance(eps=0)", ("matrix_sqrt",)),
    "isqrt_cov": HeadConfig(
        "covariance(eps=0)",
        ("matrix_sqrt(forward='newton_schulz', backward='unrolled', num_iters=5, scale='trace')",),
    ),
    "g2denet": HeadConfig("moments", ("matrix_sqrt", "signed_sqrt", "l2")),
    "monet": HeadConfig("moments", ("matrix_sqrt", "tensor_sketch(10000)", "signed_sqrt", "l2")),
    "dropcov": HeadConfig("dropcov", ()),
}
PAPERS = ("average", "bcnn", "improved_bcnn", "o2p")  # the rows of Table 1, and the baseline


class Head(nn.Module):
    """The module from features to descriptor.

    Paper: Sec. 2.1, Figure 1.

    Args:
        preset: a name of `PRESETS`, or a `HeadConfig`; the options below change single parts of it.
        channels: the number of channels of the features, or one number per network. It may be left out if no part has
            to know it. If it is given, `out` says what the head returns, and parts that do not fit are refused at once.
        pooling: a pooling as text, such as "bilinear(eps=1, eps_scale=absolute)" (`POOLINGS`).
        normalize: normalizations in order, as text (`NORMALIZATIONS`).
        layout: "maps" for (B, C, H, W) and (B, C, L), "tokens" for (B, N, C).
        triangle: keep the upper triangle of a symmetric matrix, scaled so that inner products stay: half the memory.
        **options: options of the pooling or of the normalizations, such as ``eps=0.01`` or ``backward="svd"``. Each
            goes to the parts that take it.

    Example:
        >>> head = Head("improved_bcnn", channels=8)
        >>> head(torch.rand(2, 8, 5, 5)).shape, head.out
        (torch.Size([2, 36]), Vector(length=36))
        >>> Head("improved_bcnn", eps=0.01).config.pooling
        'bilinear(eps=0.01)'
    """

    def __init__(
        self,
        preset: str | HeadConfig = "improved_bcnn",
        channels: int | Sequence[int] | None = None,
        **options: Any,
    ):
        super().__init__()
        self.config = make_config(preset, **options)
        inputs = _as_maps(channels)
        pooling = POOLINGS.make(self.config.pooling, inputs=inputs)
        assert isinstance(pooling, Pooling)
        self.pooling = pooling
        # Where the channels are not known, whether the parts fit is seen with one.
        shape = pooling.shape(*inputs or (Maps(1),) * pooling.num_inputs)
        self._pooled = type(shape)
        self.normalizations = nn.ModuleList()
        kinds = [getattr(_class_of(text), "takes", "entries") for text in self.config.normalize]
        # Matrix functions, and what stands before them, work on whole matrices; then come entries, then the vector.
        self._whole = max((i + 1 for i, kind in enumerate(kinds) if kind == "spd"), default=0)
        self._flat_from = self._whole + len(list(takewhile(lambda kind: kind == "entries", kinds[self._whole :])))
        for i, text in enumerate(self.config.normalize):
            if i == self._flat_from:
                shape = self._flat(shape)
            self.normalizations.append(NORMALIZATIONS.make(text, inputs=None if inputs is None else (shape,)))
            shape = self._after(i, shape)
            if i + 1 == self._whole:
                self._symmetric = isinstance(shape, Spd)
        if not self._whole:
            self._symmetric = self._pooled is Spd
        self.out = None if inputs is None else self._flat(shape)
        _check_thin(self)

    def forward(self, *features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Descriptors, shape (B, length), in float32 (float64 for float64 features).

        Args:
            *features: of one network, or of as many as the pooling takes, in the head's layout.
            mask: True where a location is valid, shape (B, H, W), (B, L) or (B, N).
        """
        with full_precision(features[0]):
            return self._normalize(self.pool(*features, mask=mask))

    def pool(self, *features: Tensor, mask: Tensor | None = None) -> Tensor | Factored:
        """The pooled features before the normalizations; a symmetric matrix is not formed yet."""
        if len(features) != self.pooling.num_inputs:
            name, count = POOLINGS.read(self.config.pooling).name, self.pooling.num_inputs
            raise ValueError(f"head: expected {count} features for {name!r} pooling, got {len(features)}.")
        pooled: Tensor | Factored = self.pooling(*features, layout=self.config.layout, mask=mask)
        return pooled

    def matrix(self, *features: Tensor, mask: Tensor | None = None) -> Tensor | Factored:
        """The matrix after all normalizations, not formed as long as they work on its factor (`on_factored`)."""
        with full_precision(features[0]):
            pooled = self.pool(*features, mask=mask)
            for module in self.normalizations:
                if isinstance(pooled, Factored) and hasattr(module, "on_factored"):
                    pooled = module.on_factored(pooled)  # type: ignore[operator]
                else:
                    pooled = module(pooled) if module.takes == "spd" else _globally(module, formed(pooled))
        return pooled

    def normalize_matrix(self, matrix: Tensor) -> Tensor:
        """Descriptors of matrices (B, d, d) that are pooled already, such as stored ones; of vectors, after averages.

        As in `forward`, half precision is computed in float32.
        """
        right = matrix.ndim == (2 if self._pooled is Vector else 3)
        if not right or (self._pooled is Spd and matrix.shape[-1] != matrix.shape[-2]):
            expected = {Spd: "(B, d, d)", Matrix: "(B, d, e)", Vector: "(B, d)"}[self._pooled]
            raise ValueError(f"head: expected pooled features of shape {expected}, got {tuple(matrix.shape)}.")
        with full_precision(matrix):
            return self._normalize(matrix.to(torch.promote_types(matrix.dtype, torch.float32)))

    def normalize_decomposed(self, matrix: Decomposed) -> Tensor:
        """The same of matrices (B, d, d) whose eigenvectors are known; the first normalization is a matrix function."""
        with full_precision(matrix.U):
            return self._normalize(self.normalizations[0](matrix), begin=1)

    def shape(self, *inputs: Shape) -> Vector:
        """What it gives for features of these shapes; an error in words if a part does not fit."""
        shape = self.pooling.shape(*inputs)
        for i in range(len(self.normalizations)):
            shape = self._after(i, self._flat(shape) if i == self._flat_from else shape)
        return self._flat(shape)

    def matrix_shape(self, *inputs: Shape) -> Shape:
        """What `matrix` gives for features of these shapes, to a scorer that takes matrices."""
        shape = self.pooling.shape(*inputs)
        for i in range(len(self.normalizations)):
            shape = self._after(i, shape)
        return shape

    def length(self, *channels: int) -> int:
        """Of a descriptor, given the channels of the features."""
        return self.shape(*map(Maps, channels)).length

    def extra_repr(self) -> str:
        return f"layout={self.config.layout!r}, triangle={self.config.triangle!r}"

    # --- the stages ---------------------------------------------------------------------------------------------------

    def _normalize(self, pooled: Tensor | Factored | Applied, *, begin: int = 0) -> Tensor:
        """Matrix functions and what stands before them on whole matrices, the rest on entries, then on the vector."""
        modules = list(self.normalizations)
        for module, after in zip_longest(modules[begin : self._whole], modules[begin + 1 : self._whole]):
            if module.takes != "spd":
                pooled = _globally(module, formed(pooled))
            elif isinstance(module, MatrixFunction) and getattr(after, "takes_applied", False):
                assert not isinstance(pooled, Applied)
                pooled = Applied(module, pooled)
            else:
                pooled = module(pooled)
        matrix = formed(pooled)
        weights = None
        if self.config.triangle and self._symmetric:
            weights = multiplicity(matrix.shape[-1], matrix)
            x = entries(matrix)
        else:
            x = matrix.flatten(1)
        for module in modules[self._whole : self._flat_from]:
            x = module(x, weights) if module.weighted else module(x)
        x = x if weights is None else x * weights.sqrt()
        for module in modules[self._flat_from :]:
            x = module(x)
        return x

    def _after(self, i: int, shape: Shape) -> Shape:
        after: Shape = self.normalizations[i].shape(shape)  # type: ignore[operator]
        return after

    def _flat(self, shape: Shape) -> Vector:
        return Vector(shape.triangle if isinstance(shape, Spd) and self.config.triangle else shape.size)


def _globally(module: nn.Module, matrix: Tensor) -> Tensor:
    """A normalization of vectors on the entries of whole matrices."""
    result: Tensor = module(matrix.flatten(1)).view_as(matrix)
    return result


def describe(
    features: Tensor | Sequence[Tensor],
    preset: str | HeadConfig = "improved_bcnn",
    *,
    mask: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Turn features into descriptors in one call: ``Head(preset, channels, **options)(*features, mask=mask)``.

    Args:
        features: the features of one network, or a list with those of each network.
        preset: as in `Head`.
        mask: True where a location is valid.
        **options: those of `Head`.

    Example:
        >>> describe(torch.rand(2, 6, 7), "bcnn").shape
        torch.Size([2, 21])
    """
    given = [features] if isinstance(features, Tensor) else list(features)
    axis = 2 if make_config(preset, **options).layout == "tokens" else 1
    channels = [f.shape[axis] for f in given if isinstance(f, Tensor) and f.ndim > axis]
    return Head(preset, channels if len(channels) == len(given) else None, **options).forward(*given, mask=mask)


# --- configurations ---------------------------------------------------------------------------------------------------


def make_config(preset: str | HeadConfig, **options: Any) -> HeadConfig:
    """A preset with some of its fields or some options of its parts changed, all checked; None leaves one as it is."""
    if not isinstance(preset, HeadConfig):
        if preset not in PRESETS:
            raise unknown_name("head", "preset", preset, PRESETS)
        preset = PRESETS[preset]
    given = {name: value for name, value in options.items() if value is not None}
    changes = {name: given.pop(name) for name in HeadConfig.__dataclass_fields__ if name in given}
    if "normalize" in changes:
        changes["normalize"] = _as_texts(changes["normalize"])
    config = replace(preset, **changes)
    check_layout("head", config.layout)
    if not isinstance(config.triangle, bool):
        raise ValueError(f"head: expected `triangle` to be True or False, got {config.triangle!r}.")
    config = replace(
        config,
        pooling=str(POOLINGS.read(config.pooling)),
        normalize=tuple(str(NORMALIZATIONS.read(text)) for text in config.normalize),
    )
    return with_options(config, given)


def with_options(config: HeadConfig, options: Mapping[str, Any]) -> HeadConfig:
    """Options by name, each in the text of every part that takes it; one that no part takes is refused."""
    taken: set[str] = set()
    changed = []
    for registry, text in _texts_in(config):
        own = {name: value for name, value in options.items() if name in options_of(registry, text)}
        if options.get("thin") and "thin" in taken:
            own.pop("thin", None)  # only the first function is given a matrix that is not formed
        taken |= set(own)
        changed.append(str(registry.read(str(registry.read(text).with_options(**own)))))
    for name in options:
        if name not in taken:
            parts = ", ".join(registry.read(text).name for registry, text in _texts_in(config))
            raise unknown_name("head", f"option of {parts}:", name, options_in(config))
    return replace(config, pooling=changed[0], normalize=tuple(changed[1:]))


def _texts_in(config: HeadConfig) -> list[tuple[Registry, str]]:
    return [(POOLINGS, config.pooling), *((NORMALIZATIONS, text) for text in config.normalize)]


def options_in(config: HeadConfig) -> list[str]:
    """The names of all options that `make_config` takes for such a head."""
    of_parts = (option for registry, text in _texts_in(config) for option in options_of(registry, text))
    return list(dict.fromkeys((*HeadConfig.__dataclass_fields__, *of_parts)))


def options_of(registry: Registry, text: str) -> Sequence[str]:
    """The names of the options that a part takes."""
    return list(registry[registry.read(text).name].options)


def ridge_in(config: HeadConfig) -> float | None:
    """The eps of the pooling; None where it takes none."""
    written = POOLINGS.read(config.pooling)
    options = POOLINGS[written.name].options
    return float(written.options.get("eps", options["eps"].default)) if "eps" in options else None


def from_first_version(content: Mapping[str, Any]) -> HeadConfig:
    """From the fields of a configuration written when the ridge and the thin path were fields of their own."""
    old = dict(content)
    ridge = {name: old.pop(name) for name in ("eps", "eps_scale") if name in old}
    thin = old.pop("thin", None)
    if ridge and str(old.get("pooling")) == "bilinear":
        old["pooling"] = str(POOLINGS.read("bilinear").with_options(**ridge))
    texts = list(old["normalize"])
    if thin is not None and texts and "thin" in options_of(NORMALIZATIONS, texts[0]):
        texts[0] = str(NORMALIZATIONS.read(texts[0]).with_options(thin=thin))
    return make_config(HeadConfig(**{**old, "normalize": tuple(texts)}))


def _as_texts(normalize: Any) -> tuple[str, ...]:
    if isinstance(normalize, str):
        return (normalize,)
    if not isinstance(normalize, Sequence) or not all(isinstance(text, str) for text in normalize):
        raise ValueError(f"head: expected `normalize` to be text or a list of texts, got {normalize!r}.")
    return tuple(normalize)


def _class_of(normalization: str) -> type[nn.Module]:
    return NORMALIZATIONS[NORMALIZATIONS.read(normalization).name].make


def _as_maps(channels: int | Sequence[int] | None) -> tuple[Maps, ...] | None:
    if channels is None:
        return None
    given: Any = [channels] if isinstance(channels, Integral) else channels
    if not isinstance(given, Sequence) or not all(isinstance(c, Integral) and int(c) > 0 for c in given):
        raise ValueError(f"head: expected `channels` to be a whole number >= 1, or a list of them, got {channels!r}.")
    return tuple(Maps(int(c)) for c in given)


def _check_thin(head: Head) -> None:
    """The thin path asks for a matrix that is not formed yet and has a ridge."""
    for i, module in enumerate(head.normalizations):
        if isinstance(module, MatrixFunction) and module.thin and (i or not head.pooling.has_ridge):
            raise ValueError(
                "head: expected thin=True with bilinear pooling, eps > 0 and a matrix function first, its methods not "
                f"named, got {head.config}."
            )
