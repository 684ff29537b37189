"""The benchmark's own reference and clock can be trusted."""

import pytest
import torch

from bcnn.bench import timing
from bcnn.bench.matfun import SCALARS, cases, reference
from bcnn.bench.numerics import bare_root
from bcnn.bench.regimes import REGIMES

from ..helpers import gradient, random_like, reference_gradient, relative_error, spd, symmetric
from ..helpers import reference as scipy_reference


@pytest.mark.parametrize("function", ["sqrt", "log", "power"])
def test_reference_agrees_with_scipy(function):
    A = spd(2)
    G = symmetric(random_like(A))
    Z, X = reference(A, G, SCALARS[function])
    assert relative_error(Z, scipy_reference(function, A)) < 1e-12
    assert relative_error(X, reference_gradient(function, A, G)) < 1e-10


def test_regimes_are_what_they_are_called():
    generator = torch.Generator().manual_seed(0)
    sigma = torch.linalg.eigvalsh(REGIMES["paper"](2, 64, generator))
    assert sigma[:, -1].tolist() == pytest.approx([1e6 + 1] * 2, rel=1e-6)
    assert sigma.min() >= 1 - 1e-6
    sigma = torch.linalg.eigvalsh(REGIMES["rank_deficient"](2, 64, generator))
    assert ((sigma - 1).abs() < 1e-6).sum(-1).min() >= 32
    sigma = torch.linalg.eigvalsh(REGIMES["flat"](3, 8, generator))
    assert torch.allclose(sigma[0], torch.full((8,), 2.0, dtype=torch.float64))
    assert torch.allclose(sigma[1], torch.ones(8, dtype=torch.float64))
    assert sigma[2].round().unique().tolist() == [1.0, 100.0]


def test_baseline_comes_first_for_every_function():
    found = cases(torch.eye(4).expand(2, 4, 4))
    assert list(found) == list(SCALARS)
    assert {next(iter(methods)) for methods in found.values()} == {"eigh + autograd"}


def test_clock_times_by_rounds(monkeypatch):
    durations = iter([100.0, 10.0, 80.0, 20.0, 4.0])  # a slow first case is timed twice
    monkeypatch.setattr(timing, "_timed", lambda run, device: next(durations))
    slow, fast = timing.time_rounds([lambda: None, lambda: None], rounds=3, slow_ms=50.0)
    assert slow.times_ms == [100.0, 80.0]
    assert fast.times_ms == [10.0, 20.0, 4.0]
    assert fast.median_ms == 10.0
    assert fast.spread == pytest.approx(0.8)
    assert slow.ratio_to(fast) == 7.0


def test_what_is_taken_for_the_least_of_work_is_a_root_with_its_gradient():
    A = spd(2, dtype=torch.float32)
    G = symmetric(random_like(A))
    assert relative_error(bare_root(A), scipy_reference("sqrt", A.double())) < 1e-6
    assert relative_error(gradient(bare_root, A, G), reference_gradient("sqrt", A.double(), G.double())) < 1e-5
