"""Random matrices, sizes, precisions, functions and methods: is any result wrong without a word?

Every case is one call of `sqrtm`, `logm` or `powm` with methods by name, forwards and backwards, and ends as one of

    right     value and gradient as near to the exact ones as the precision allows
    refused   an error of ours that says what was expected
    warned    not as near, but said so
    WRONG     neither right nor said

"As near as the precision allows": a method that is backward stable gives f(A + E) for an E of some rounding units of A,
so that the value may be off by |g'| times that, at the smallest eigenvalue that E leaves, and the gradient by |g''|.
The exact function of the rounded A comes from mpmath with 40 digits for float64, from float64 for the others.

Every fourth case more is a `Factored` matrix X X^T + ridge I that is not formed, with default methods, through the Gram
matrix or not; its gradients are those of X and of the ridge.

Run:      python benchmarks/fuzz.py --out benchmarks/results      (--num-cases 300: half a minute)
Cost:     six minutes for 3,600 cases and 900 that are not formed, on two cores
Expected: benchmarks/results/fuzz_*.md; exit code 1 if anything is WRONG
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import torch
from torch import Tensor

import bcnn
from bcnn import machine
from bcnn.linalg.operand import Factored
from bcnn.matfun.backward import BACKWARDS
from bcnn.matfun.forward import FORWARDS
from bcnn.matfun.plan import available_pairs
from bcnn.matfun.thin import MAX_SHARE_CPU
from bcnn.report.document import Table
from bcnn.report.markdown import table_markdown

OUTCOMES = ("right", "refused", "warned", "WRONG")
# How many rounding units, times sqrt(d), the E above may have. An iteration rounds once a product, of which there are
# dozens; repeated roots cost a bit each (`inverse_scaling_squaring`). The gradient "svd" is what the paper shows it to
# be, and is not judged.
UNITS = {"eigen": 8.0, "svd": 8.0, "inverse_scaling_squaring": 1024.0}
UNITS_OF_ITERATIONS = 64.0
SPECTRA: dict[str, Callable[[int, random.Random], list[float]]] = {
    "flat": lambda d, r: [1.0] * d,
    "spread": lambda d, r: [10 ** (-r.uniform(0, 6) * i / max(1, d - 1)) for i in range(d)],
    "wide": lambda d, r: [10 ** (-r.uniform(6, 14) * i / max(1, d - 1)) for i in range(d)],
    "repeated": lambda d, r: [r.choice([1.0, 0.5, 0.01]) for _ in range(d)],
    "ridge": lambda d, r: [1.0 if i == 0 else 1e-3 for i in range(d)],
    "low rank": lambda d, r: [r.uniform(0.1, 1) if i <= d // 4 else 0.0 for i in range(d)],
    "zero": lambda d, r: [0.0] * d,
}


class Case(NamedTuple):
    function: str
    p: float | None
    forward: str
    backward: str
    dtype: torch.dtype
    spectrum: str
    scale: float
    precision: str  # of a decomposition
    A: Tensor
    factored: Factored | None = None  # A, not formed
    thin: bool | None = None  # whether it goes through the Gram matrix


def draw(seed: int) -> Case:
    r = random.Random(seed)
    function = r.choice(["sqrt", "log", "power"])
    forward, backward = r.choice(available_pairs(function))
    dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    sizes = [1, 2, 3, 5, 8] if dtype == torch.float64 else [1, 2, 3, 5, 8, 16, 33]  # mpmath takes its time
    d, batch = r.choice(sizes), r.choice([(), (1,), (3,), (2, 2)])
    name = r.choice(list(SPECTRA))
    scale = r.choice([1.0, 1.0, 1e-12, 1e12])
    generator = torch.Generator().manual_seed(seed)
    Q = torch.linalg.qr(torch.randn(*batch, d, d, generator=generator, dtype=torch.float64)).Q
    sigma = scale * torch.tensor(SPECTRA[name](d, r), dtype=torch.float64)
    A = (Q * sigma) @ Q.mT
    p = r.choice([0.1, 0.25, 0.5, 0.75, 1.0, 1.5, -0.5]) if function == "power" else None
    precision = r.choice(["high", "fast"])
    return Case(function, p, forward, backward, dtype, name, scale, precision, ((A + A.mT) / 2).to(dtype))


def draw_factored(seed: int) -> Case:
    """X of any rank, a ridge from 1e-12 of the largest eigenvalue to the largest eigenvalue."""
    r = random.Random(seed)
    function = r.choice(["sqrt", "log", "power"])
    dtype = r.choice([torch.float32, torch.float32, torch.float64, torch.bfloat16])
    d = r.choice([2, 3, 5, 8] if dtype == torch.float64 else [2, 3, 5, 8, 16, 33])
    n, batch = r.randint(1, d + 2), r.choice([(), (1,), (3,), (2, 2)])
    name, scale = r.choice(list(SPECTRA)), r.choice([1.0, 1.0, 1e-12, 1e12])
    generator = torch.Generator().manual_seed(seed)
    U = torch.linalg.qr(torch.randn(*batch, d, d, generator=generator, dtype=torch.float64)).Q
    V = torch.linalg.qr(torch.randn(*batch, n, n, generator=generator, dtype=torch.float64)).Q
    rank = min(d, n)
    s = scale * torch.tensor(SPECTRA[name](rank, r), dtype=torch.float64)
    X = ((U[..., :rank] * s.sqrt()) @ V[..., :rank].mT).to(dtype)
    ridge = scale * 10 ** -r.uniform(0, 12) * torch.ones(batch, dtype=torch.promote_types(dtype, torch.float32))
    p = r.choice([0.1, 0.25, 0.5, 0.75, 1.0, 1.5, -0.5]) if function == "power" else None
    thin = r.choice([None, True, False])
    way = "thin" if n < d and (thin or (thin is None and n <= MAX_SHARE_CPU * d)) else "formed"
    eye = torch.eye(d, dtype=torch.float64)
    A = X.double() @ X.double().mT + ridge.double()[..., None, None] * eye
    return Case(function, p, "not formed", way, dtype, name, scale, "high", A, Factored(X, ridge), thin)


def run(case: Case) -> tuple[str, str]:
    """How it ended, and why."""
    if case.factored is not None:
        return _run_factored(case, case.factored)
    options: dict[str, Any] = {"forward": case.forward, "backward": case.backward}
    if case.forward in ("newton_schulz", "denman_beavers"):
        options["num_iters"] = 45 if case.forward == "newton_schulz" else 15
    if FORWARDS[case.forward].basis:
        options["precision"] = case.precision
    leaf = case.A.clone().requires_grad_()
    return _outcome(case, leaf, [leaf], options, lambda Z, X, G: judge(case, Z, X[0], G))


def _run_factored(case: Case, A: Factored) -> tuple[str, str]:
    X, ridge = A.X.clone().requires_grad_(), A.ridge.clone().requires_grad_()
    leaves, options = [X, ridge], {"thin": case.thin}
    return _outcome(case, Factored(X, ridge), leaves, options, lambda Z, X, G: judge_factored(case, Z, X, G))


def _outcome(
    case: Case, A: Any, leaves: list[Tensor], options: dict[str, Any], wrong: Callable[..., str | None]
) -> tuple[str, str]:
    call = {"sqrt": bcnn.sqrtm, "log": bcnn.logm, "power": bcnn.powm}[case.function]
    arguments = () if case.p is None else (case.p,)
    G = torch.randn(case.A.shape, generator=torch.Generator().manual_seed(1)).to(case.dtype)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            Z = call(A, *arguments, **options)
            found = torch.autograd.grad(Z, leaves, G)
        except (ValueError, ArithmeticError, bcnn.SecondDerivativeError) as error:
            return "refused", f"{type(error).__name__}: {error}"
    why = wrong(Z.detach(), found, G)
    if why is None:
        return "right", ""
    ours = [str(w.message) for w in said if w.category.__module__ == "bcnn.errors"]
    return ("warned", ours[0]) if ours else ("WRONG", why)


def judge(case: Case, Z: Tensor, X: Tensor, G: Tensor) -> str | None:
    """What is further from the exact values than it may be, or None."""
    if not Z.isfinite().all() or not X.isfinite().all():
        return "not finite"
    d = case.A.shape[-1]
    unit = torch.finfo(torch.promote_types(case.dtype, torch.float32)).eps
    share = UNITS.get(case.forward, UNITS_OF_ITERATIONS) * math.sqrt(d) * unit
    if case.forward == "minimax":  # of half precision it covers what its own unit of rounding can tell from zero
        share = max(share, torch.finfo(case.dtype).eps)
    flat = (T.double().reshape(-1, d, d) for T in (case.A, Z, X, G))
    for A, z, x, g in zip(*flat, strict=True):
        sigma, U = exact_spectrum(A, case.dtype)
        largest = float(sigma.max())
        if largest <= 0:
            continue  # a zero matrix: finite is all that can be asked
        sigma = sigma.clamp_min(0)
        E = share * largest
        least = max(float(sigma.min()), E)
        value, slope, bend = derivatives(case, sigma, least, largest, torch.promote_types(case.dtype, torch.float32))
        rounding = torch.finfo(case.dtype).eps
        error = float((z - (U * value) @ U.T).norm())
        allowed = slope * E * math.sqrt(d) + 4 * rounding * float(value.norm())
        if error > allowed:
            return f"value off by {error:.1e}, allowed {allowed:.1e}"
        well_conditioned = float(sigma.min()) > 10 * E
        if not well_conditioned or not BACKWARDS[case.backward].exact or case.backward == "svd":
            continue
        exact = gradient(case, sigma, U, (g + g.T) / 2)
        error = float((x - exact).norm())
        allowed = bend * E * float(g.norm()) * math.sqrt(d) + 4 * rounding * float(exact.norm())
        if case.backward == "unrolled":  # steps with growing coefficients pass rounding on, and so do their derivatives
            allowed = 1000 * allowed
        if error > allowed:
            return f"gradient off by {error:.1e}, allowed {allowed:.1e}"
    return None


def judge_factored(case: Case, Z: Tensor, found: tuple[Tensor, ...], G: Tensor) -> str | None:
    """Likewise, of X X^T + ridge I: a matrix that is formed is rounded to float32, the Gram matrix is in float64."""
    if not all(T.isfinite().all() for T in (Z, *found)):
        return "not finite"
    assert case.factored is not None
    d, n = case.factored.X.shape[-2:]
    inside = torch.promote_types(case.dtype, torch.float64 if case.backward == "thin" else torch.float32)
    rounding = torch.finfo(case.dtype).eps
    shapes = ((d, d), (d, n), (1,), (d, d), (d, n), (1,))
    tensors = (G, case.factored.X, case.factored.ridge, Z, *found)
    flat = (T.double().reshape(-1, *shape) for T, shape in zip(tensors, shapes, strict=True))
    for g, X, ridge, z, grad_X, grad_ridge in zip(*flat, strict=True):
        sigma, U = exact_spectrum(formed_exactly(X, ridge, case.dtype), case.dtype)
        sigma = sigma.clamp_min(float(ridge))
        largest = float(sigma.max())
        E = UNITS["eigen"] * math.sqrt(d) * torch.finfo(inside).eps * largest
        least = max(float(ridge), E)
        value, slope, bend = derivatives(case, sigma, least, largest, inside)
        error = float((z - (U * value) @ U.T).norm())
        # A ridge within E may be left as it is or be lifted to the floor; `value` is of the floor.
        unknown = float((exact_value(case, sigma) - value).norm())
        allowed = slope * E * math.sqrt(d) + 4 * rounding * float(value.norm()) + unknown
        if error > allowed:
            return f"value off by {error:.1e}, allowed {allowed:.1e}"
        if float(ridge) < 10 * E:
            continue
        Q, length = (g + g.T) / 2, float(g.norm())
        grad_A = gradient(case, sigma, U, Q)
        # Two terms, each up to |g'| at the ridge times Q, of which little may be left.
        allowed = (bend * E * math.sqrt(d) + 8 * rounding * slope) * length
        error, size = float((grad_X - 2 * grad_A @ X).norm()), 2 * float(torch.linalg.matrix_norm(X, 2))
        if error > allowed * size:
            return f"gradient to X off by {error:.1e}, allowed {allowed * size:.1e}"
        error = float((grad_ridge - grad_A.trace()).abs())
        if error > allowed * math.sqrt(d):
            return f"gradient to the ridge off by {error:.1e}, allowed {allowed * math.sqrt(d):.1e}"
    return None


def formed_exactly(X: Tensor, ridge: Tensor, dtype: torch.dtype) -> Any:
    """A from the X that was given: with 40 digits for float64, else in float64."""
    if dtype != torch.float64:
        return X @ X.T + float(ridge) * torch.eye(X.shape[0], dtype=X.dtype)
    with mpmath.workdps(40):
        own = mpmath.matrix(X.tolist())
        return own * own.T + mpmath.mpf(float(ridge)) * mpmath.eye(X.shape[0])


def exact_spectrum(A: Any, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    if dtype != torch.float64:
        sigma, U = torch.linalg.eigh(A)
        return sigma, U
    with mpmath.workdps(40):
        values, vectors = mpmath.eigsy(A if isinstance(A, mpmath.matrix) else mpmath.matrix(A.tolist()))
        d = len(values)
        U = torch.tensor([[float(vectors[i, j]) for j in range(d)] for i in range(d)], dtype=torch.float64)
        return torch.tensor([float(v) for v in values], dtype=torch.float64), U


def derivatives(
    case: Case, sigma: Tensor, least: float, largest: float, inside: torch.dtype
) -> tuple[Tensor, float, float]:
    """G at the eigenvalues; the largest |g'| and |g''| between `least` and `largest`; `inside` it is computed in."""
    if case.function == "log":
        floor = torch.finfo(inside).eps * largest
        return sigma.clamp_min(floor).log(), 1 / least, 1 / least**2
    p = 0.5 if case.p is None else case.p
    ends = (least, largest)
    value = sigma**p if p > 0 else sigma.clamp_min(least) ** p
    slope = max(abs(p) * s ** (p - 1) for s in ends)
    return value, slope, max(abs(p * (p - 1)) * s ** (p - 2) for s in ends) + slope / largest


def exact_value(case: Case, sigma: Tensor) -> Tensor:
    return sigma.log() if case.function == "log" else sigma ** (0.5 if case.p is None else case.p)


def gradient(case: Case, sigma: Tensor, U: Tensor, G: Tensor) -> Tensor:
    """The Daleckii-Krein formula, divided differences by their limits where eigenvalues are close."""
    a, b = sigma[:, None], sigma[None, :]
    p = 0.0 if case.function == "log" else 0.5 if case.p is None else case.p
    near, value = (p or 1.0) * ((a + b) / 2) ** (p - 1), exact_value(case, sigma)
    far = (value[:, None] - value[None, :]) / torch.where(a == b, torch.ones_like(a - b), a - b)
    K = torch.where((a - b).abs() < 1e-5 * (a + b), near, far)
    return U @ (K * (U.T @ G @ U)) @ U.T


def table(counts: Counter[tuple[str, str, str]], num_cases: int) -> str:
    rows = sorted({(function, methods) for function, methods, _ in counts})
    cells = [(*row, *(str(counts[(*row, outcome)]) for outcome in OUTCOMES)) for row in rows]
    total = [str(sum(n for (*_, o), n in counts.items() if o == outcome)) for outcome in OUTCOMES]
    title = f"{num_cases} random cases, {', '.join(SPECTRA)} spectra, float32, float64, bfloat16, d 1 to 33"
    about = machine.facts()
    note = f"{about['machine']}, torch {about['torch']}."
    header = ("function", "forward + backward", *OUTCOMES)
    return table_markdown(Table(title, header, (*cells, ("all", "", *total)), num_labels=2, note=note)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-cases", type=int, default=3600)
    parser.add_argument("--seed", type=int, default=0, help="of the first case; the next have the next")
    parser.add_argument("--out", type=Path, help="folder for the table")
    given = parser.parse_args()
    counts: Counter[tuple[str, str, str]] = Counter()
    seeds = range(given.seed, given.seed + given.num_cases)
    cases = itertools.chain(((s, draw(s)) for s in seeds), ((s, draw_factored(s)) for s in seeds[::4]))
    for seed, case in cases:
        outcome, why = run(case)
        counts[case.function, f"{case.forward} + {case.backward}", outcome] += 1
        if outcome == "WRONG":
            about = f"{case.dtype}, {case.spectrum} x {case.scale:g}, shape {tuple(case.A.shape)}, p {case.p}"
            print(f"seed {seed}: {case.function}, {case.forward} + {case.backward}, {about}: {why}", flush=True)
    text = table(counts, counts.total())
    print(text)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / f"fuzz_torch{torch.__version__.split('+')[0]}.md").write_text(text)
    return 1 if any(outcome == "WRONG" for *_, outcome in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
