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
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from .. import machine
from ..errors import unknown_name
from ..matfun.functions.logm import logm
from ..matfun.functions.powm import powm
from ..matfun.functions.sqrtm import sqrtm
from . import rivals
from .regimes import REGIMES, RIDGE
from .timing import time_rounds

EXPONENT = 0.3
BASELINE = "eigh + autograd"


@dataclass(frozen=True)
class Case:
    """A way to compute Z and dL/dA, and what it is called."""

    function: str
    label: str
    run: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    regime: str
    dim: int
    batch: int
    function: str
    method: str
    time_ms: float  # forward and backward, a matrix
    ratio: float  # to eigh + autograd in the same rounds
    forward_ms: float  # forward alone, a matrix
    forward_ratio: float
    spread: float  # half the range of the rounds over their median, forward and backward
    root_error: float  # relative, Frobenius, the worst of the batch; NaN where Z is not finite
    gradient_error: float
    num_nonfinite: int  # matrices with an infinite or NaN root or gradient
    products: float  # d x d products forward and backward, in units of 2 d^3 operations; decompositions not counted
    device: str


SCALARS: dict[str, Callable[[Tensor], Tensor]] = {
    "sqrt": torch.sqrt,
    "log": torch.log,
    "power": lambda sigma: sigma**EXPONENT,
}


def _by_eigh(g: Callable[[Tensor], Tensor], A: Tensor) -> Tensor:
    sigma, U = torch.linalg.eigh(A)
    return (U * g(sigma)[..., None, :]) @ U.mT


def _by_svd(g: Callable[[Tensor], Tensor], A: Tensor) -> Tensor:
    U, sigma, _ = torch.linalg.svd(A)
    return (U * g(sigma)[..., None, :]) @ U.mT


def _in_float64(run: Callable[[Tensor], Tensor], A: Tensor) -> Tensor:
    return run(A.double()).to(A.dtype)


def cases(A: Tensor) -> Iterator[Case]:
    """Every case, the baseline of its function first; the ridge gives the iterations their range for free."""
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
    for function, methods in options.items():
        yield Case(function, BASELINE, partial(_by_eigh, SCALARS[function]))
        yield Case(function, "eigh float64 + autograd", partial(_in_float64, partial(_by_eigh, SCALARS[function])))
        yield Case(function, "svd + autograd", partial(_by_svd, SCALARS[function]))
        for name, rival in rivals.find(function)[0].items():
            yield Case(function, name, rival)
        for label, arguments in methods.items():
            yield Case(function, label, partial(wrappers[function], **arguments))


def run(
    *,
    dims: tuple[int, ...],
    batch: int,
    regimes: tuple[str, ...],
    functions: tuple[str, ...],
    device: str,
    rounds: int,
    methods: tuple[str, ...] = (),
    seed: int = 0,
    tick: Callable[[str, int], None] = lambda label, total: None,
) -> list[Row]:
    """Measure every case, or those whose label has one of `methods` in it, always beside the baseline.

    `tick` hears of each timed run and of how many there are in the present group.
    """
    for name in regimes:
        if name not in REGIMES:
            raise unknown_name("bench matfun", "regime", name, REGIMES)
    for name in functions:
        if name not in SCALARS:
            raise unknown_name("bench matfun", "function", name, SCALARS)
    _check_methods(methods, functions)
    rows: list[Row] = []
    for regime, d, function in product(regimes, dims, functions):
        generator = torch.Generator().manual_seed(seed)
        A = REGIMES[regime](batch, d, generator).float()
        G = torch.randn(batch, d, d, generator=generator)
        chosen = [case for case in cases(A) if case.function == function and _is_wanted(case, methods)]
        if methods and len(chosen) == 1:
            continue  # a method of another function
        rows += _measure(regime, chosen, A.to(device), (G + G.mT).to(device) / 2, rounds, tick)
    return rows


def _check_methods(methods: tuple[str, ...], functions: tuple[str, ...]) -> None:
    """Each is part of the name of some method."""
    labels = dict.fromkeys(case.label for case in cases(torch.eye(1)[None]) if case.function in functions)
    for word in methods:
        if not any(word in label for label in labels):
            raise unknown_name("bench matfun", "method", word, labels)


def _is_wanted(case: Case, methods: tuple[str, ...]) -> bool:
    return case.label == BASELINE or not methods or any(word in case.label for word in methods)


def _measure(
    regime: str, chosen: list[Case], A: Tensor, G: Tensor, rounds: int, tick: Callable[[str, int], None]
) -> list[Row]:
    function = chosen[0].function
    Z_exact, gradient_exact = reference(A, G, SCALARS[function])
    total = 2 * len(chosen) * (rounds + 1)
    label = f"{regime} {function} d={A.shape[-1]}"
    device = A.device.type

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exceptions of the SVD rules are counted below
        heard = partial(tick, label, total)
        both = time_rounds([partial(_both, c, A, G) for c in chosen], rounds=rounds, device=device, tick=heard)
        alone = time_rounds([partial(_forward, c, A) for c in chosen], rounds=rounds, device=device, tick=heard)
        results = [_both(case, A, G) for case in chosen]
        products = [_count_products(case, A, G) for case in chosen]

    def row(i: int, case: Case) -> Row:
        Z, gradient = results[i]
        finite = Z.isfinite().flatten(1).all(1) & gradient.isfinite().flatten(1).all(1)
        per_matrix = 1 / len(A)
        return Row(
            regime=regime,
            dim=A.shape[-1],
            batch=len(A),
            function=function,
            method=case.label,
            time_ms=both[i].median_ms * per_matrix,
            ratio=both[i].ratio_to(both[0]),
            forward_ms=alone[i].median_ms * per_matrix,
            forward_ratio=alone[i].ratio_to(alone[0]),
            spread=both[i].spread,
            root_error=_error(Z, Z_exact),
            gradient_error=_error(gradient, gradient_exact),
            num_nonfinite=int((~finite).sum()),
            products=products[i],
            device=device,
        )

    return [row(i, case) for i, case in enumerate(chosen)]


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


def _both(case: Case, A: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    leaf = A.detach().clone().requires_grad_()
    Z = case.run(leaf)
    (gradient,) = torch.autograd.grad(Z, leaf, G)
    return Z.detach(), (gradient + gradient.mT) / 2


def _forward(case: Case, A: Tensor) -> Tensor:
    with torch.no_grad():
        return case.run(A)


def _count_products(case: Case, A: Tensor, G: Tensor) -> float:
    with FlopCounterMode(display=False) as counter:
        _both(case, A, G)
    return counter.get_total_flops() / (2 * len(A) * A.shape[-1] ** 3)


def _error(value: Tensor, exact: Tensor) -> float:
    value = value.double().cpu()
    size = torch.linalg.matrix_norm(exact)
    size = torch.where(size > 0, size, exact.shape[-1] ** 0.5)  # log(I) = 0: relative to I
    error = torch.linalg.matrix_norm(value - exact) / size
    return float(error.max())  # NaN wins: max propagates it


def to_records(rows: list[Row]) -> list[dict[str, Any]]:
    """Rows as dictionaries, the machine and versions beside every one."""
    about = machine.describe()
    return [{**asdict(row), **about} for row in rows]
