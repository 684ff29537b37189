"""The random cases of `benchmarks/fuzz.py`: some of them, and that it would see a fault."""

import runpy
from collections import Counter
from pathlib import Path

import pytest
import torch

import bcnn
from bcnn.linalg.operand import Factored


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


def test_nothing_is_wrong_of_matrices_that_are_not_formed(fuzz):
    ways = set()
    for seed in range(40):
        case = fuzz["draw_factored"](seed)
        outcome, why = fuzz["run"](case)
        ways.add(case.backward)
        assert outcome != "WRONG", f"seed {seed}: {why}"
    assert ways == {"thin", "formed"}


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


@pytest.mark.parametrize("way", ["thin", "formed"])
@pytest.mark.parametrize(("faults", "said"), [((1.01, 1, 1), "value off"), ((1, 1.01, 1), "gradient to X off"),
                                              ((1, 1, 1.01), "gradient to the ridge off")])  # fmt: skip
def test_a_fault_of_a_matrix_that_is_not_formed_would_be_seen(fuzz, way, faults, said):
    case = next(c for s in range(1000) if (c := fuzz["draw_factored"](s)).function == "sqrt" and c.backward == way
                and c.dtype == torch.float64 and c.factored.ridge.min() > 1e-3 * c.scale)  # fmt: skip
    X, ridge = (T.clone().requires_grad_() for T in case.factored[:2])
    G = torch.randn(case.A.shape, dtype=case.dtype)
    Z = bcnn.sqrtm(Factored(X, ridge), thin=case.thin)
    grad_X, grad_ridge = torch.autograd.grad(Z, (X, ridge), G)
    assert fuzz["judge_factored"](case, Z.detach(), (grad_X, grad_ridge), G) is None
    wrong = [fault * T.detach() for fault, T in zip(faults, (Z, grad_X, grad_ridge), strict=True)]
    assert said in fuzz["judge_factored"](case, wrong[0], tuple(wrong[1:]), G)
