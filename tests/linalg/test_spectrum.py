"""Decompositions fall back and fail aloud; side by side they equal one by one."""

import os
import threading

import pytest
import torch

import bcnn
from bcnn.linalg import parallel, spectrum
from bcnn.linalg.products import polynomial, symmetric_product

from ..helpers import relative_error, spd, with_spectrum

TORCH_EIGH = torch.linalg.eigh


def fails_in(dtypes):
    def eigh(A, *, out=None):
        if A.dtype in dtypes:
            raise torch.linalg.LinAlgError("linalg.eigh: The algorithm failed to converge")
        return TORCH_EIGH(A) if out is None else TORCH_EIGH(A, out=out)

    return eigh


@pytest.mark.parametrize("d", [6, 100])  # alone, and side by side
@pytest.mark.usefixtures("two_threads")
def test_eigh_falls_back_to_float64_and_says_so_once(monkeypatch, d):
    A = spd(3, d=d, dtype=torch.float32)
    exact = bcnn.sqrtm(A.double())
    monkeypatch.setattr(torch.linalg, "eigh", fails_in({torch.float32}))
    with pytest.warns(
        bcnn.PrecisionFallbackWarning, match=r"did not converge in torch.float32.*repeated in float64"
    ) as seen:
        Z = bcnn.sqrtm(A, precision="fast")
    assert len(seen) == 1
    assert Z.dtype == torch.float32
    assert relative_error(Z, exact) < 1e-6


def test_eigh_that_fails_in_float64_too_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.linalg, "eigh", fails_in({torch.float32, torch.float64}))
    with (
        pytest.warns(bcnn.PrecisionFallbackWarning),
        pytest.raises(bcnn.ConvergenceError, match=r"did not converge in float64.*check=True"),
    ):
        bcnn.sqrtm(spd(2, dtype=torch.float32), precision="fast")


def test_nan_without_checks_is_an_error_and_not_a_result():
    A = torch.full((2, 3, 3), torch.nan, dtype=torch.float64)
    with pytest.raises(bcnn.ConvergenceError):
        bcnn.sqrtm(A, check=False)


def test_signed_svd_sees_negative_eigenvalues():
    sigma, U = spectrum.svd(with_spectrum([3.0, 1.0, -2.0]))
    assert torch.allclose(sigma.sort().values, torch.tensor([-2.0, 1.0, 3.0], dtype=torch.float64))
    assert torch.allclose(U @ torch.diag(sigma) @ U.mT, with_spectrum([3.0, 1.0, -2.0]))


def test_svd_sees_eigenvalues_of_both_signs():
    swap = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert spectrum.svd(swap)[0].min() < 0
    for function in (bcnn.sqrtm, bcnn.logm):
        with pytest.raises(bcnn.NotPositiveDefiniteError):
            function(swap, forward="svd")


@pytest.mark.usefixtures("two_threads")
def test_side_by_side_equals_one_by_one(monkeypatch):
    A = spd(2, 3, d=128)
    sigma, U = spectrum.eigh(A)
    assert relative_error(spectrum.compose(U, sigma), A) < 1e-13
    monkeypatch.setattr(parallel, "MIN_DIM", 1000)
    assert torch.allclose(sigma, spectrum.eigh(A)[0], rtol=0, atol=1e-14)


@pytest.mark.usefixtures("two_threads")
def test_side_by_side_leaves_the_number_of_threads_alone():
    spectrum.eigh(spd(2, d=128))
    assert torch.get_num_threads() == 2
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))  # one started afterwards
    thread.start()
    thread.join()
    assert seen == [2]


@pytest.mark.usefixtures("two_threads")
def test_many_callers_at_once():
    A = spd(3, d=100)
    exact, results = bcnn.sqrtm(A), {}
    threads = [threading.Thread(target=lambda i=i: results.__setitem__(i, bcnn.sqrtm(A))) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(results[i], exact) for i in range(4))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.usefixtures("two_threads")
def test_works_in_a_forked_child():
    A = spd(2, d=100)
    bcnn.sqrtm(A)  # starts the pool in the parent
    pid = os.fork()
    if pid == 0:
        ok = bool(spectrum.eigh(A)[0].isfinite().all())
        os._exit(0 if ok else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("d", [5, 384, 401])
def test_symmetric_product(d):
    U = torch.randn(2, d, d, dtype=torch.float64)
    D = torch.randn(2, d, 1, dtype=torch.float64)
    assert torch.allclose(symmetric_product(U, D * U.mT), U @ (D * U.mT), atol=1e-10)
    assert torch.allclose(symmetric_product(U[0], D * U[0].mT), U[0] @ (D * U[0].mT), atol=1e-10)  # broadcasts


def test_polynomial():
    M = spd()
    expected = 2 * torch.eye(6, dtype=M.dtype) - M + 0.5 * M @ M + 3 * M @ M @ M
    assert torch.allclose(polynomial([2.0, -1.0, 0.5, 3.0], M), expected)
    assert torch.allclose(polynomial([2.0, -1.0], M), 2 * torch.eye(6, dtype=M.dtype) - M)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_null_eigenvalues_stay_below_what_counts_as_zero(dtype):
    from bcnn.bench.regimes import relu_like_features

    X = relu_like_features(2, 256, 40, torch.Generator().manual_seed(0)).to(dtype)
    sigma, _ = spectrum.eigh(X @ X.mT / 40)
    noise = sigma[:, : 256 - 40].abs().amax(-1) / sigma[:, -1] / torch.finfo(dtype).eps
    assert 0 < noise.max() < spectrum.NULL_UNITS
