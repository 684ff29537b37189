"""The random cases of `benchmarks/fuzz.py`: some of them, and that it would see a fault."""

import runpy
from collections import Counter
from pathlib import Path

import pytest
import torch

import bcnn


@pytest.fixture(scope="module")
def fuzz():
    return runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "fuzz.py"))


def test_nothing_is_wrong_without_a_word(fuzz):
    counts = Counter()
    for seed in range(50):
        case = fuzz["draw"](seed)
        outcome, why = fuzz["run"](case)
        counts[case.function, f"{case.forward} + {case.backward}", outcome] += 1
        assert outcome != "WRONG", f"seed {seed}: {why}"
    text = fuzz["table"](counts, 50)
    assert "| all |  |" in text


@pytest.mark.parametrize(("fault", "said"), [(1.01, "value off by"), (float("nan"), "not finite")])
def test_a_fault_would_be_seen(fuzz, fault, said, monkeypatch):
    original = bcnn.sqrtm
    monkeypatch.setattr(bcnn, "sqrtm", lambda A, **options: fault * original(A, **options))
    seed = next(s for s in range(1000) if (c := fuzz["draw"](s)).function == "sqrt" and c.forward == "eigen"
                and c.spectrum == "flat" and c.dtype == torch.float32)  # fmt: skip
    outcome, why = fuzz["run"](fuzz["draw"](seed))
    assert outcome == "WRONG"
    assert said in why


def test_a_wrong_gradient_would_be_seen(fuzz):
    case = next(c for s in range(1000) if (c := fuzz["draw"](s)).function == "sqrt" and c.backward == "lyapunov"
                and c.spectrum == "spread" and c.dtype == torch.float64)  # fmt: skip
    G = torch.randn(case.A.shape, dtype=case.A.dtype)
    leaf = case.A.clone().requires_grad_()
    Z = bcnn.sqrtm(leaf)
    (X,) = torch.autograd.grad(Z, leaf, G)
    assert fuzz["judge"](case, Z.detach(), X, G) is None
    assert "gradient off by" in fuzz["judge"](case, Z.detach(), 1.01 * X, G)
