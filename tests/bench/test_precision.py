"""`measure` tells errors as they are: known errors, what is not finite, and what the methods do in each regime."""

import math

import numpy as np
import pytest
import torch

from bcnn.bench import precision
from bcnn.bench.precision import METHODS, SINGLE_ONLY, Precision, measure
from bcnn.bench.regimes import REGIMES
from bcnn.errors import ConvergenceError

from ..helpers import random_like, reference, reference_gradient, spd, symmetric

pytestmark = pytest.mark.skipif(not np.finfo(np.longdouble).eps < 1e-18, reason="no extended precision here")

DTYPES = [torch.float32, torch.float64]


def measured(regime, dtype, *, batch=2, d=64):
    A = REGIMES[regime](batch, d, torch.Generator().manual_seed(0)).to(dtype)
    return {row.method: row for row in measure(A, symmetric(random_like(A)))}


def root(A):
    """A right method: SciPy's root, and the gradient from its root of a block matrix."""
    return _Root.apply(A)


class _Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, A):
        ctx.save_for_backward(A)
        return reference("sqrt", A).to(A.dtype)

    @staticmethod
    def backward(ctx, G):
        (A,) = ctx.saved_tensors
        return reference_gradient("sqrt", A, G).to(A.dtype)


def measure_only(monkeypatch, method, *, batch=3, dtype=torch.float64):
    monkeypatch.setattr(precision, "METHODS", {"only": method})
    A = torch.stack([(1 + i) * a for i, a in enumerate(spd(batch, d=5, dtype=dtype))])  # largest eigenvalues 1, 2, 3
    (row,) = measure(A, symmetric(random_like(A)))
    return row


def largest(A):
    return round(float(torch.linalg.eigvalsh(A.detach()).max()))


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-7), (torch.float64, 1e-13)])
def test_a_right_method_has_an_error_of_rounding(monkeypatch, dtype, bound):
    row = measure_only(monkeypatch, root, dtype=dtype)
    assert row == Precision("only", row.root_error, row.gradient_error, 0, 3)
    assert 0 < row.root_error < bound
    assert 0 < row.gradient_error < bound


def test_the_error_is_that_of_the_worst_matrix(monkeypatch):
    row = measure_only(monkeypatch, lambda A: root(A) * (1 + largest(A) / 1000))  # 0.1, 0.2 and 0.3 percent too large
    assert row.root_error == pytest.approx(3e-3, rel=1e-6)
    assert row.gradient_error == pytest.approx(3e-3, rel=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_left_out_and_counted(monkeypatch, bad):
    def fails_on_the_third(A):
        factor = bad if largest(A) == 3 else 0.0
        return root(A) * (1 + largest(A) / 1000) + factor * (A - A.detach() + 1)  # the gradient fails as well

    row = measure_only(monkeypatch, fails_on_the_third)
    assert row.root_error == pytest.approx(2e-3, rel=1e-6)
    assert row.gradient_error == pytest.approx(2e-3, rel=1e-6)
    assert (row.num_nonfinite, row.num_matrices) == (1, 3)


def test_root_and_gradient_are_judged_apart(monkeypatch):
    def no_gradient(A):
        return root(A) + 0 * (A - A.detach()).sqrt()  # the slope of sqrt at 0 is infinite: 0 * inf

    row = measure_only(monkeypatch, no_gradient)
    assert row.root_error < 1e-13
    assert math.isnan(row.gradient_error)
    assert row.num_nonfinite == 3
    row = measure_only(monkeypatch, lambda A: root(A) + math.inf)
    assert math.isnan(row.root_error)
    assert row.gradient_error < 1e-13
    assert row.num_nonfinite == 3


@pytest.mark.parametrize("error", [torch.linalg.LinAlgError, ConvergenceError])
def test_a_method_that_gives_up_counts_as_not_finite(monkeypatch, error):
    def gives_up(A):
        if largest(A) > 1:
            raise error("did not converge")
        return root(A)

    row = measure_only(monkeypatch, gives_up)
    assert row.root_error < 1e-13
    assert row.num_nonfinite == 2
    row = measure_only(monkeypatch, lambda A: gives_up(A * 2))
    assert math.isnan(row.root_error)
    assert math.isnan(row.gradient_error)
    assert row.num_nonfinite == row.num_matrices == 3


def test_other_errors_are_not_taken_for_measurements(monkeypatch):
    def wrong(A):
        raise TypeError("a slip of ours")

    with pytest.raises(TypeError, match="slip"):
        measure_only(monkeypatch, wrong)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_method_that_applies_batch_of_one(dtype):
    heard = []
    A = spd(1, d=8, cond=10, dtype=dtype)
    before = A.clone()
    rows = measure(A, symmetric(random_like(A)), progress=lambda *event: heard.append(event))
    applies = [name for name in METHODS if dtype == torch.float32 or name not in SINGLE_ONLY]
    assert [row.method for row in rows] == applies
    assert heard == [("precision", 1, 1)]
    assert torch.equal(A, before)
    assert {(row.num_nonfinite, row.num_matrices) for row in rows} == {(0, 1)}
    eps = torch.finfo(dtype).eps
    for row in rows:  # at condition number 10 every method works, except that five steps are too few
        limit = 0.1 if "5" in row.method else 1000 * eps
        assert row.root_error < limit, row
        assert row.gradient_error < limit, row


@pytest.mark.parametrize("dtype", DTYPES)
def test_paper_regime_the_decomposition_decides_not_the_rule(dtype):
    """No eigenvalues coincide: both rules inherit the error of the basis that they share, which is far above theirs."""
    rows = measured("paper", dtype)
    svd, lyapunov = rows["svd"], rows["lyapunov"]
    assert svd.root_error == lyapunov.root_error
    assert svd.gradient_error == pytest.approx(lyapunov.gradient_error, rel=0.1)
    assert lyapunov.gradient_error > 10 * torch.finfo(dtype).eps
    if dtype == torch.float32:  # a better basis is what gains orders of magnitude
        assert rows["lyapunov, high precision"].gradient_error < 1e-2 * lyapunov.gradient_error


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 0.1), (torch.float64, 1e-10)])
def test_rank_deficient_regime_lyapunov_stays_finite_and_precise(dtype, bound):
    """Half the eigenvalues differ by rounding alone; where two are equal in the last bit, by chance, others are NaN."""
    rows = measured("rank_deficient", dtype)
    lyapunov = rows["lyapunov"]
    assert lyapunov.num_nonfinite == 0
    assert lyapunov.gradient_error < bound
    assert rows["svd"].num_nonfinite or rows["svd"].gradient_error > 2 * lyapunov.gradient_error
    if dtype == torch.float64:  # the more digits there are to lose, the more are lost
        for name in ("eigh + autograd", "svd + autograd", "svd"):
            row = rows[name]
            assert row.num_nonfinite or row.gradient_error > 1e6 * lyapunov.gradient_error, row


@pytest.mark.filterwarnings("error")  # those of the SVD rules are counted instead
@pytest.mark.parametrize("dtype", DTYPES)
def test_flat_regime_lyapunov_alone_is_finite(dtype):
    rows = measured("flat", dtype, d=16)
    for name in ("eigh + autograd", "svd + autograd", "svd"):
        assert rows[name].num_nonfinite == 2
        assert math.isnan(rows[name].gradient_error)
        assert rows[name].root_error < 10 * torch.finfo(dtype).eps
    assert rows["lyapunov"].num_nonfinite == 0
    assert rows["lyapunov"].gradient_error < 10 * torch.finfo(dtype).eps
    assert rows["svd_truncated"].gradient_error == 1  # ignored matrices: a gradient of zero


def test_last_bits_that_are_not_symmetric_do_not_count():
    A = spd(1, d=6, cond=10)
    G = symmetric(random_like(A))
    skewed = A.clone()
    skewed[0, 0, 1] *= 1 + 1e-12  # eigh would read one of the two
    rows = {row.method: row for row in measure(skewed, G)}
    assert rows["eigh + autograd"].root_error < 1e-14
