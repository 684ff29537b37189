"""Time and precision of matrix functions and their gradients: `bcnn bench matfun`.

The paper finds "SVD gradients ... orders of magnitude less precise than Lyapunov gradients" (Sec. 3.5) and Newton
iterations faster than an SVD (Table 3); this measures both, for every method, in the regimes of `regimes`.

Run:      bcnn bench matfun --out runs/bench          (--quick: seconds)
Cost:     ten minutes at d = 512 on two cores
Expected: benchmarks/results/

Legend: A symmetric matrices (batch, d, d); Z = f(A); G = dL/dZ.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from ..errors import unknown_name
from ..matfun.functions.logm import logm
from ..matfun.functions.powm import powm
from ..matfun.functions.sqrtm import sqrtm
from ..progress import Progress, silent
from ..report.tables import Column, Layout, Record
from . import rivals
from .numerics import MatrixFunction, bare_root, by_eigh, by_svd, value_and_gradient, worst_error
from .regimes import REGIMES, RIDGE
from .settings import Matfun
from .timing import time_rounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPONENT = 0.3
BASELINE = "eigh + autograd"
SCALARS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": torch.sqrt,
    "log": torch.log,
    "power": lambda sigma: sigma**EXPONENT,
}


def cases(A: Tensor) -> dict[str, dict[str, MatrixFunction]]:
    """Every method by function and name, the baseline first; the ridge gives the iterations their range for free."""
    lower = RIDGE / torch.linalg.matrix_norm(A).max().item()
    iterative = {"backward": "lyapunov", "solver": "iterative"}
    newton = {"forward": "newton_schulz", "num_iters": 20}
    minimax = {"forward": "minimax", "tol": 1e-5, "lower": lower}
    options: dict[str, dict[str, dict[str, Any]]] = {
        "sqrt": {
            "bcnn.sqrtm (default)": {},
            "bcnn.sqrtm precision=fast": {"precision": "fast"},
            "eigen + svd, Eq. (2)-(4)": {"backward": "svd", "precision": "fast"},
            "eigen + svd_truncated": {"backward": "svd_truncated", "precision": "fast"},
            "svd + svd": {"forward": "svd", "backward": "svd", "precision": "fast"},
            "svd + lyapunov": {"forward": "svd", "backward": "lyapunov", "precision": "fast"},
            "eigen + lyapunov bartels_stewart": {"solver": "bartels_stewart", "precision": "fast"},
            "denman_beavers + lyapunov": {"forward": "denman_beavers", "tol": 1e-5},
            "newton_schulz 5 + unrolled": {"forward": "newton_schulz", "num_iters": 5, "backward": "unrolled"},
            "newton_schulz 20 + unrolled": {**newton, "backward": "unrolled"},
            "newton_schulz 20 + unrolled, nothing stored": {**newton, "backward": "unrolled", "store": False},
            "newton_schulz 20 + lyapunov iterative 20": {**newton, **iterative, "solver_iters": 20},
            "minimax 1e-5 + lyapunov": minimax,
            "minimax 1e-5 + lyapunov iterative": {**minimax, **iterative, "solver_lower": lower**0.5},
            "minimax 1e-5 + unrolled, nothing stored": {**minimax, "backward": "unrolled", "store": False},
        },
        "log": {
            "bcnn.logm (default)": {},
            "svd + svd": {"forward": "svd", "backward": "svd", "precision": "fast"},
            "eigen + svd, Eq. (2)-(4)": {"backward": "svd", "precision": "fast"},
            "inverse_scaling_squaring + loewner": {"forward": "inverse_scaling_squaring", "lower": lower},
            "inverse_scaling_squaring + unrolled": {"backward": "unrolled", "lower": lower, "store": False},
        },
        "power": {
            f"bcnn.powm({EXPONENT}) (default)": {},
            "svd + svd": {"forward": "svd", "backward": "svd", "precision": "fast"},
            "eigen + svd, Eq. (2)-(4)": {"backward": "svd", "precision": "fast"},
        },
    }
    wrappers: dict[str, Callable[..., Any]] = {"sqrt": sqrtm, "log": logm, "power": partial(powm, p=EXPONENT)}
    return {
        function: {
            BASELINE: partial(by_eigh, g=g),
            "eigh float64 + autograd": partial(_in_float64, partial(by_eigh, g=g)),
            "svd + autograd": partial(by_svd, g=g),
            **({"bare: eigh float64, 5 products": bare_root} if function == "sqrt" else {}),
            **rivals.find(function)[0],
            **{label: partial(wrappers[function], **own) for label, own in options[function].items()},
        }
        for function, g in SCALARS.items()
    }


def _in_float64(method: MatrixFunction, A: Tensor) -> Tensor:
    return method(A.double()).to(A.dtype)


def run(settings: Matfun, progress: Progress = silent) -> list[dict[str, Any]]:
    """One record per regime, size, function and method."""
    _check(settings)
    records: list[dict[str, Any]] = []
    for regime, d, function in product(settings.regime or REGIMES, settings.dims, settings.function or SCALARS):
        generator = torch.Generator().manual_seed(0)
        A = REGIMES[regime](settings.batch, d, generator).float()
        G = torch.randn(A.shape, generator=generator)
        chosen = {name: method for name, method in cases(A)[function].items() if _is_wanted(name, settings.method)}
        if settings.method and len(chosen) == 1:
            continue  # the words name methods of other functions
        shared = {"regime": regime, "dim": d, "batch": settings.batch, "function": function, "device": settings.device}
        A, G = A.to(settings.device), (G + G.mT).to(settings.device) / 2
        records += _measure(shared, chosen, A, G, settings.rounds, progress)
    return records


def _check(settings: Matfun) -> None:
    """Raise for a word that is not part of the name of any method."""
    methods = cases(torch.eye(1)[None])
    names = dict.fromkeys(name for function in settings.function or SCALARS for name in methods[function])
    for word in settings.method:
        if not any(word in name for name in names):
            raise unknown_name("bench matfun", "method", word, names)


def _is_wanted(name: str, words: Sequence[str]) -> bool:
    return name == BASELINE or not words or any(word in name for word in words)


def _measure(
    shared: Record, chosen: dict[str, MatrixFunction], A: Tensor, G: Tensor, rounds: int, progress: Progress
) -> list[dict[str, Any]]:
    function, device = shared["function"], shared["device"]
    Z_exact, gradient_exact = reference(A, G, SCALARS[function])
    stage = f"{shared['regime']} {function} d={shared['dim']}"
    time = partial(time_rounds, rounds=rounds, device=device, progress=progress)
    records = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exceptions of the SVD rules are counted below
        both = time([partial(_both, method, A, G) for method in chosen.values()], stage=f"{stage}, forward + backward")
        alone = time([partial(_forward, method, A) for method in chosen.values()], stage=f"{stage}, forward")
        for (name, method), clock, forward in zip(chosen.items(), both, alone, strict=True):
            Z, gradient = _both(method, A, G)
            finite = Z.isfinite().flatten(1).all(1) & gradient.isfinite().flatten(1).all(1)
            own = {
                "method": name,
                "time_ms": clock.median_ms / len(A),
                "ratio": clock.ratio_to(both[0]),
                "forward_ms": forward.median_ms / len(A),
                "forward_ratio": forward.ratio_to(alone[0]),
                "spread": clock.spread,
                "root_error": worst_error(Z, Z_exact),
                "gradient_error": worst_error(gradient, gradient_exact),
                "num_nonfinite": int((~finite).sum()),
                "products": _count_products(method, A, G),
            }
            records.append({**shared, **own})
    return records


def reference(A: Tensor, G: Tensor, g: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Z and dL/dA in float64 on the CPU, by eigh and divided differences taken limit by limit: nobody's shortcut."""
    A, G = A.double().cpu(), G.double().cpu()
    sigma, U = torch.linalg.eigh(A)
    sigma = sigma.requires_grad_()
    values = g(sigma)
    (slope,) = torch.autograd.grad(values.sum(), sigma)
    sigma, values = sigma.detach(), values.detach()
    difference = sigma[..., :, None] - sigma[..., None, :]
    middle = (slope[..., :, None] + slope[..., None, :]) / 2
    near = difference.abs() < 1e-5 * (sigma[..., :, None] + sigma[..., None, :])  # the mean slope is off by 1e-11
    K = torch.where(near, middle, (values[..., :, None] - values[..., None, :]) / difference)
    gradient = U @ ((U.mT @ G @ U) * K) @ U.mT
    return (U * values[..., None, :]) @ U.mT, gradient


def _both(method: MatrixFunction, A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    Z, gradient = value_and_gradient(method, A, G)
    return Z, (gradient + gradient.mT) / 2


def _forward(method: MatrixFunction, A: Tensor) -> Tensor:
    with torch.no_grad():
        return method(A)


def _count_products(method: MatrixFunction, A: Tensor, G: Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        _both(method, A, G)
    return float(counter.get_total_flops() / (2 * len(A) * A.shape[-1] ** 3))


def remarks() -> Iterator[str]:
    """Say which other packages are not installed and will be left out."""
    for name, why in rivals.missing().items():
        yield f"Left out: {name}, {why}."


def _is_bad(record: Record) -> bool:
    return int(record["num_nonfinite"]) > 0


def _plot(records: Sequence[Record]) -> Figure:
    """Gradient error against time, a panel per table; methods with infinite or NaN gradients stand at the top."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    tables = LAYOUT.groups(records)
    columns = min(2, len(tables))
    rows = -(-len(tables) // columns)
    figure = Figure(figsize=(8.5 * columns, 4.2 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for panel in panels[len(tables) :]:
        panel.axis("off")
    for panel, (title, group) in zip(panels, tables.items(), strict=False):
        for i, record in enumerate(group, start=1):
            time = float(record["time_ms"])
            error = 10.0 if _is_bad(record) else min(max(float(record["gradient_error"]), 1e-9), 10.0)
            marker = "x" if _is_bad(record) else "*" if str(record["method"]).startswith("bcnn.") else "o"
            name = f"{i} {record['method']}{' (not finite)' if _is_bad(record) else ''}"
            panel.scatter(time, error, marker=marker, s=60, label=name)
            panel.annotate(str(i), (time, error), textcoords="offset points", xytext=(5, 4))
        panel.set(xscale="log", yscale="log", title=title, ylabel="relative error of the gradient")
        panel.set_xlabel("forward + backward, ms per matrix")
        panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        panel.xaxis.set_major_formatter(ScalarFormatter())
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(True, alpha=0.2)
        panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return figure


LAYOUT = Layout(
    columns=(
        Column("regime"),
        Column("dim"),
        Column("batch"),
        Column("function"),
        Column("method", "method"),
        Column("time_ms", "ms", ".2f"),  # forward and backward, per matrix
        Column("ratio", "x eigh", ".2f"),  # to eigh + autograd in the same rounds
        Column("forward_ms", "forward ms", ".2f", short="fwd ms"),
        Column("forward_ratio", "x eigh", ".2f"),
        Column("spread"),  # half the range of the rounds over their median, forward and backward
        Column("root_error", "root error", ".1e", short="root"),
        Column("gradient_error", "gradient error", ".1e", short="gradient"),
        Column("num_nonfinite", "not finite", short="NaN"),  # matrices with an infinite or NaN root or gradient
        Column("products", "products", ".1f", short="prod."),  # of 2 d^3 operations; decompositions not counted
        Column("device"),
    ),
    note="Times per matrix, forward and backward, medians; errors relative to float64, the worst of the batch.",
    caption="ms per matrix, forward + backward; x eigh: over eigh + autograd; fwd: forward alone; relative errors "
    "of root and gradient; matrices not finite; d x d products",
    title=lambda record: f"{record['function']}, {record['regime']}, d={record['dim']}, batch {record['batch']}",
    plot=_plot,
    is_bad=_is_bad,
)
