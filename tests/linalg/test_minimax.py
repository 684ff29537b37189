"""The polynomials do what their names say: they equioscillate, and their composition reaches the tolerance."""

import math

import pytest
import torch

from bcnn.linalg.minimax import NEWTON_SCHULZ, best_cubic, best_quintic, schedule


def value(p, x):
    return sum(c * x ** (2 * i + 1) for i, c in enumerate(p))


def grid(lo, hi):
    return torch.logspace(math.log10(lo), math.log10(hi), 20001, dtype=torch.float64).clamp(lo, hi)


@pytest.mark.parametrize(("best", "extrema"), [(best_cubic, 3), (best_quintic, 4)])
@pytest.mark.parametrize("interval", [(1e-3, 1.0), (0.1, 1.0), (0.7, 1.3), (1e-8, 1.0)])
def test_equioscillates(best, extrema, interval):
    p, error = best(*interval)
    deviation = value(p, grid(*interval)) - 1
    assert deviation.abs().max().item() == pytest.approx(error, rel=1e-4)
    # Chebyshev: a polynomial with n coefficients is the best one if it touches +-E n + 1 times in turn.
    touching = deviation[deviation.abs() > 0.999 * error].sign()
    assert int((touching.diff() != 0).sum()) + 1 == extrema


@pytest.mark.parametrize("half", [9e-3, 1e-3, 1e-6])
def test_narrow_intervals_keep_their_promise(half):
    for best in (best_cubic, best_quintic):
        p, error = best(1 - half, 1 + half)
        assert (value(p, grid(1 - half, 1 + half)) - 1).abs().max().item() <= 1.01 * error + 1e-15


@pytest.mark.parametrize("lower", [1e-14, 1e-6, 1e-2, 0.5, 1.0])
@pytest.mark.parametrize("tol", [1e-3, 1e-7, 1e-15])
def test_schedule_reaches_the_tolerance(lower, tol):
    x = grid(math.sqrt(lower), 1.0)
    for p in schedule(lower, None, tol):
        x = value(p, x)
    assert (x - 1).abs().max().item() <= max(tol, 2e-15)


def test_beats_newton_by_the_factor_in_the_docstring():
    def products(steps):
        return sum(len(p) + 1 for p in steps) - 3  # no product for M and Z in the first step, none for Z in the last

    steps = schedule(1e-6, None, 1e-5)
    assert products(steps) == 24
    assert products((NEWTON_SCHULZ,) * 20) == 57


@pytest.mark.parametrize("num_steps", range(1, 8))
def test_a_limited_schedule_never_overshoots(num_steps):
    x = torch.linspace(0, 1, 10001, dtype=torch.float64)
    steps = schedule(1e-14, num_steps, 1e-7)
    for p in steps:
        x = value(p, x)
    assert len(steps) <= num_steps
    assert x.min() >= 0
    assert x.max() <= 1 + 1e-6
    assert schedule(1e-14, 0, 1e-7) == ()


def test_a_range_beyond_float64_ends():
    assert schedule(1e-300, None, 1e-7) == schedule(1e-28, None, 1e-7)
    assert len(schedule(1e-300, None, 1e-7)) < 40
