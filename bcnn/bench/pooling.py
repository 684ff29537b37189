"""Time and precision of pooling, heads and the thin path: `bcnn bench pooling`.

Three questions, each a table: what a head costs next to its network; what the thin path saves where there are fewer
locations than channels, and how exact it is; what bfloat16 saves in the network, and what it does to the descriptor.

Run:      bcnn bench pooling --out runs/bench         (--quick: seconds, a small network with random weights)
Cost:     five minutes on two cores
Expected: benchmarks/results/

Legend: X features in columns (batch, d, n), divided by sqrt(n); A = X X^T + ridge I; Z = A^(1/2); G = dL/dZ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..descriptors.bfloat16 import avoid_broken_amx
from ..linalg.operand import Factored
from ..matfun.functions.sqrtm import SQRT, sqrtm
from ..matfun.thin import thin_matrix_function
from ..models.bcnn import BCNN
from ..models.build import build_model
from ..pooling.head import PAPERS, Head
from ..progress import Progress, silent
from ..report.tables import Column, Layout
from .numerics import MatrixFunction, by_eigh, value_and_gradient, worst_error
from .regimes import RIDGE, TOP, relu_like_features
from .settings import Pooling
from .timing import time_rounds

HEAD_GOAL, BFLOAT16_GOAL = "at most 0.05", "at most 0.67"  # ratios, on the full scale
THIN_SIZES = ((512, 196, 8, "at most 0.35"), (512, 392, 8, ""), (2048, 49, 2, "at most 0.05"))  # d, n, batch, goal
QUICK_THIN_SIZES = ((64, 16, 2, ""),)
PHOTOGRAPHS = ("brick", "grass", "gravel", "coffee", "chelsea", "astronaut", "rocket", "camera")
Records = list[dict[str, Any]]


def run(settings: Pooling, progress: Progress = silent) -> Records:
    """One record per case, the first of each table being what the others are compared with."""
    try:
        import skimage.data  # noqa: F401
    except ImportError:
        raise ImportError(
            "bench pooling: expected scikit-image, whose photographs it takes, got none; run: pip install 'bcnn[demo]'."
        ) from None
    model = build_model("improved_bcnn", backbone=settings.backbone, weights=settings.weights)
    images = photographs(model, settings)
    timed = partial(_timed, rounds=settings.rounds, progress=progress)
    records = _heads(model, images, settings, timed)
    for d, n, batch, goal in QUICK_THIN_SIZES if settings.quick else THIN_SIZES:
        records += _thin(d, n, batch, goal, timed)
    return records + _half_precision(model, images, settings, timed)


def photographs(model: BCNN, settings: Pooling) -> Tensor:
    """Real photographs out of scikit-image's package, prepared for the network."""
    import skimage.data
    from PIL.Image import fromarray

    prepare = model.preprocessing.at(settings.size)
    names = [PHOTOGRAPHS[i % len(PHOTOGRAPHS)] for i in range(settings.batch)]
    return torch.stack([prepare(fromarray(getattr(skimage.data, name)())) for name in names])


def _timed(
    group: str,
    cases: Mapping[str, Callable[[], Any]],
    num_images: int,
    goals: Mapping[str, str],
    *,
    rounds: int,
    progress: Progress,
) -> Records:
    """Measure the time of each case per image."""
    clocks = time_rounds(list(cases.values()), rounds=rounds, stage=group, progress=progress)
    return [
        {
            "group": group, "case": name, "time_ms": clock.median_ms / num_images, "ratio": clock.ratio_to(clocks[0]),
            "spread": clock.spread, "goal": goals.get(name, ""),
        }
        for name, clock in zip(cases, clocks, strict=True)
    ]  # fmt: skip


@torch.no_grad()
def _heads(model: BCNN, images: Tensor, settings: Pooling, timed: Callable[..., Records]) -> Records:
    features = model.backbone(images)
    heads = {f"head {preset}": Head(preset) for preset in PAPERS}
    fast = ("matrix_sqrt(precision='fast')", "signed_sqrt", "l2")
    heads["head improved_bcnn, precision='fast'"] = Head("improved_bcnn", normalize=fast)
    cases = {f"{settings.backbone} forward": partial(model.backbone, images)}
    cases |= {name: partial(head, features) for name, head in heads.items()}
    _, d, height, width = features.shape
    group = f"heads after {settings.backbone}, {settings.size} px, d={d}, n={height * width}, batch {len(images)}"
    network, *records = timed(group, cases, len(images), {} if settings.quick else {"head improved_bcnn": HEAD_GOAL})
    return [network, *({**own, **_head_errors(heads[own["case"]], features)} for own in records)]


@torch.enable_grad()
def _head_errors(head: Head, features: Tensor) -> dict[str, float]:
    """Errors of the whole head, descriptor and gradient, against the same head in float64."""
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = features.detach().to(dtype, copy=True).requires_grad_()
        descriptors = head(leaf)
        along = torch.arange(descriptors.shape[1], dtype=dtype).sin()
        (gradient,) = torch.autograd.grad((descriptors @ along).sum(), leaf)
        results.append((descriptors.detach()[:, None], gradient.flatten(1)[:, None]))
    return _errors(*results)


def _errors(found: tuple[Tensor, Tensor], exact: tuple[Tensor, Tensor]) -> dict[str, float]:
    return {"root_error": worst_error(found[0], exact[0]), "gradient_error": worst_error(found[1], exact[1])}


def _thin(d: int, n: int, batch: int, goal: str, timed: Callable[..., Records]) -> Records:
    X = relu_like_features(batch, d, n, torch.Generator().manual_seed(0)) * n**-0.5
    top = torch.linalg.matrix_norm(X, 2)[:, None, None].square()
    X = (X * (TOP / top).sqrt()).float()
    G = torch.randn(batch, d, d, generator=torch.Generator().manual_seed(1))
    ridge = torch.full((batch,), RIDGE)
    forwards: dict[str, MatrixFunction] = {
        "thick: eigh + autograd": lambda x: by_eigh(Factored(x, ridge).form()),
        "thick: bcnn.sqrtm, precision='fast'": lambda x: sqrtm(Factored(x, ridge).form(), precision="fast"),
        "thick: bcnn.sqrtm": lambda x: sqrtm(Factored(x, ridge).form()),
        "thin": lambda x: thin_matrix_function(SQRT, x, ridge),
    }
    cases = {name: partial(value_and_gradient, forward, X, G) for name, forward in forwards.items()}
    group = f"pooling + square root, forward + backward, d={d}, n={n}, batch {batch}"
    records = timed(group, cases, batch, {"thin": goal})
    exact = value_and_gradient(lambda x: sqrtm(Factored(x, ridge.double()).form()), X.double(), G.double())
    return [{**own, **_errors(cases[own["case"]](), exact)} for own in records]


@torch.no_grad()
def _half_precision(model: BCNN, images: Tensor, settings: Pooling, timed: Callable[..., Records]) -> Records:
    backbone = model.backbone
    half = deepcopy(backbone).bfloat16()
    cases: dict[str, Callable[[], Tensor]] = {
        "float32": partial(backbone, images),
        "bfloat16": lambda: half(images.bfloat16()),
        "float32, autocast to bfloat16": partial(torch.autocast("cpu", dtype=torch.bfloat16)(backbone.forward), images),
    }
    group = f"{settings.backbone} forward at {settings.size} px, batch {len(images)}"
    records = timed(group, cases, len(images), {} if settings.quick else {"bfloat16": BFLOAT16_GOAL})
    reference = model.head(cases["float32"]())
    return [{**own, "cosine": float((model.head(cases[own["case"]]()) * reference).sum(-1).min())} for own in records]


def remarks() -> Iterator[str]:
    """What bfloat16 is measured without, which has to be decided before its first use."""
    if avoid_broken_amx():
        yield "This machine's AMX does not work: bfloat16 is measured without it."


LAYOUT = Layout(
    columns=(
        Column("group"),
        Column("case", "case"),
        Column("time_ms", "ms", ".2f"),  # per image
        Column("ratio", "ratio", ".3f"),
        Column("spread"),  # half the range of the rounds over their median
        Column("goal", "goal"),
        Column("root_error", "error", ".1e"),  # of the root, or of the descriptor after a head
        Column("gradient_error", "gradient error", ".1e"),
        Column("cosine", "descriptor cosine", ".5f"),
    ),
    note="Times per image, medians; ratios to the first line of each table, in the same rounds; errors relative to "
    "float64 and cosines to float32, the worst of the batch.",
    bars={"ratio": "time over the first line's"},
)
