"""Time and precision of pooling, heads and the thin path: `bcnn bench pooling`.

Three questions, each a table: what a head costs next to its network; what the thin path saves where there are fewer
locations than channels, and how exact it is; what bfloat16 saves in the network, and what it does to the descriptor.

Run:      bcnn bench pooling --out runs/bench         (--quick: seconds, a small network with random weights)
Cost:     five minutes on two cores
Expected: benchmarks/results/

Legend: X features in columns (batch, d, n), divided by sqrt(n); A = X X^T + ridge I; Z = A^(1/2); G = dL/dZ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from .. import machine
from ..matfun.functions.sqrtm import SQRT, sqrtm
from ..models.bcnn import BCNN, build_model
from ..pooling.bilinear import pooled_matrix
from ..pooling.head import PRESETS, Head
from ..pooling.thin import thin_matrix_function
from .regimes import RIDGE, TOP, relu_like_features
from .timing import time_rounds

PHOTOGRAPHS = ("brick", "grass", "gravel", "coffee", "chelsea", "astronaut", "rocket", "camera")
Tick = Callable[[str, int], None]

_FAST = "head improved_bcnn, precision='fast'"


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    group: str
    case: str
    time_ms: float  # an image
    ratio: float  # to the first line of the group, in the same rounds
    spread: float
    root_error: float | None = None  # of the root, or of the descriptor after a head; relative, the worst of the batch
    gradient_error: float | None = None
    cosine: float | None = None  # of the descriptors, to those of the first line, the worst of the batch
    goal: str = ""


@dataclass(frozen=True)
class Settings:
    """How large."""

    backbone: str = "vgg16"
    weights: str | None = "default"
    image_size: int = 448
    batch: int = 4
    thin_sizes: tuple[tuple[int, int, int], ...] = ((512, 196, 8), (512, 392, 8), (2048, 49, 2))  # d, n, batch
    rounds: int = 5
    goals: tuple[str, str] = ("at most 0.05", "at most 0.67")  # of the square root's head, of bfloat16


QUICK = Settings("tiny", None, image_size=64, batch=2, thin_sizes=((64, 16, 2),), rounds=2, goals=("", ""))


def run(settings: Settings, tick: Tick = lambda label, total: None) -> list[Row]:
    """All three tables."""
    try:
        import skimage.data  # noqa: F401
    except ImportError:
        raise ImportError(
            "bench pooling: expected scikit-image, whose photographs it takes, got none; run: pip install 'bcnn[demo]'."
        ) from None
    model = build_model("improved_bcnn", backbone=settings.backbone, weights=settings.weights)
    images = photographs(model, settings)
    rows = _heads(model, images, settings, tick)
    for d, n, batch in settings.thin_sizes:
        rows += _thin(d, n, batch, settings.rounds, tick)
    return rows + _half_precision(model, images, settings, tick)


def photographs(model: BCNN, settings: Settings) -> Tensor:
    """Real photographs out of scikit-image's package, prepared for the network."""
    import skimage.data
    from PIL.Image import fromarray

    prepare = model.config.preprocessing.at(settings.image_size)
    names = [PHOTOGRAPHS[i % len(PHOTOGRAPHS)] for i in range(settings.batch)]
    return torch.stack([prepare(fromarray(getattr(skimage.data, name)())) for name in names])


@torch.no_grad()
def _heads(model: BCNN, images: Tensor, settings: Settings, tick: Tick) -> list[Row]:
    features = model.backbone(images)
    cases: dict[str, Callable[[], Tensor]] = {f"{settings.backbone} forward": partial(model.backbone, images)}
    for preset in PRESETS:
        cases[f"head {preset}"] = partial(Head(preset), features)
    cases[_FAST] = partial(_fast(), features)
    _, d, height, width = features.shape
    group = f"heads after {settings.backbone}, {settings.image_size} px, d={d}, n={height * width}, batch {len(images)}"
    rows = _timed(group, cases, len(images), settings.rounds, tick, {"head improved_bcnn": settings.goals[0]})
    heads = [None, *(Head(preset) for preset in PRESETS), _fast()]
    return [row if head is None else _with_errors(row, head, features) for row, head in zip(rows, heads, strict=True)]


def _fast() -> Head:
    return Head("improved_bcnn", normalize=("matrix_sqrt(precision='fast')", "signed_sqrt", "l2"))


def _with_errors(row: Row, head: Head, features: Tensor) -> Row:
    """The row with the errors of the whole head, descriptor and gradient, against the same head in float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = features.detach().to(dtype, copy=True).requires_grad_()
        with torch.enable_grad():
            descriptors = head(leaf)
            along = torch.arange(descriptors.shape[1], dtype=dtype).sin()
            (gradient,) = torch.autograd.grad((descriptors @ along).sum(), leaf)
        results.append((descriptors.detach()[:, None], gradient.flatten(1)[:, None]))
    (value, gradient), (value_exact, gradient_exact) = results
    return replace(row, root_error=_error(value, value_exact), gradient_error=_error(gradient, gradient_exact))


def _thin(d: int, n: int, batch: int, rounds: int, tick: Tick) -> list[Row]:
    X = relu_like_features(batch, d, n, torch.Generator().manual_seed(0)) * n**-0.5
    top = torch.linalg.matrix_norm(X, 2)[:, None, None].square()
    X = (X * (TOP / top).sqrt()).float()
    G = torch.randn(batch, d, d, generator=torch.Generator().manual_seed(1))
    ridge = torch.full((batch,), RIDGE)
    forwards: dict[str, Callable[[Tensor], Tensor]] = {
        "thick: eigh + autograd": lambda x: _by_eigh(pooled_matrix(x, ridge)),
        "thick: bcnn.sqrtm, precision='fast'": lambda x: sqrtm(pooled_matrix(x, ridge), precision="fast"),
        "thick: bcnn.sqrtm": lambda x: sqrtm(pooled_matrix(x, ridge)),
        "thin": lambda x: thin_matrix_function(SQRT, x, ridge),
    }
    goal = {(512, 196): "at most 0.35", (2048, 49): "at most 0.05"}.get((d, n), "")
    group = f"pooling + square root, forward + backward, d={d}, n={n}, batch {batch}"
    cases = {name: partial(_both, forward, X, G) for name, forward in forwards.items()}
    rows = _timed(group, cases, batch, rounds, tick, {"thin": goal})
    exact = _both(lambda x: sqrtm(pooled_matrix(x, ridge.double())), X.double(), G.double())
    return [
        replace(row, root_error=_error(Z, exact[0]), gradient_error=_error(gradient, exact[1]))
        for row, (Z, gradient) in zip(rows, (case() for case in cases.values()), strict=True)
    ]


@torch.no_grad()
def _half_precision(model: BCNN, images: Tensor, settings: Settings, tick: Tick) -> list[Row]:
    backbone = model.backbone
    half = deepcopy(backbone).bfloat16()
    cases: dict[str, Callable[[], Tensor]] = {
        "float32": partial(backbone, images),
        "bfloat16": lambda: half(images.bfloat16()),
        "float32, autocast to bfloat16": lambda: _autocast(backbone, images),
    }
    group = f"{settings.backbone} forward at {settings.image_size} px, batch {len(images)}"
    rows = _timed(group, cases, len(images), settings.rounds, tick, {"bfloat16": settings.goals[1]})
    reference = model.head(cases["float32"]())
    return [
        replace(row, cosine=float((model.head(case()) * reference).sum(-1).min()))
        for row, case in zip(rows, cases.values(), strict=True)
    ]


def _timed(
    group: str,
    cases: Mapping[str, Callable[[], Any]],
    num_images: int,
    rounds: int,
    tick: Tick,
    goals: dict[str, str],
) -> list[Row]:
    heard = partial(tick, group, len(cases) * (rounds + 1))
    clocks = time_rounds(list(cases.values()), rounds=rounds, device="cpu", tick=heard)
    return [
        Row(
            group, name, clock.median_ms / num_images, clock.ratio_to(clocks[0]), clock.spread, goal=goals.get(name, "")
        )
        for name, clock in zip(cases, clocks, strict=True)
    ]


def _by_eigh(A: Tensor) -> Tensor:
    sigma, U = torch.linalg.eigh(A)
    return (U * sigma.sqrt()[..., None, :]) @ U.mT


def _both(forward: Callable[[Tensor], Tensor], X: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    leaf = X.detach().clone().requires_grad_()
    with torch.enable_grad():
        Z = forward(leaf)
        (gradient,) = torch.autograd.grad(Z, leaf, G)
    return Z.detach(), gradient


def _autocast(backbone: nn.Module, images: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result: Tensor = backbone(images)
    return result


def _error(value: Tensor, exact: Tensor) -> float:
    error = torch.linalg.matrix_norm(value.double() - exact) / torch.linalg.matrix_norm(exact)
    return float(error.max())


def to_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as dictionaries, the machine and versions beside every one."""
    about = machine.describe()
    return [{**asdict(row), **about} for row in rows]
