"""Products stay in float32 where PyTorch has been told that coarser ones are good enough.

A GPU would multiply numbers of 10 bits then (TensorFloat-32). That is imitated: while the setting stands, the inputs of
every product are rounded to 10 bits, forwards and backwards.
"""

import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bcnn
from bcnn.linalg.autodiff import full_precision
from bcnn.pooling.head import PAPERS, Head
from tests.helpers import ALL_PAIRS, FUNCTION, gradient, random_like, relative_error, symmetric

aten = torch.ops.aten
PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
pytestmark = pytest.mark.skipif(
    not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="the setting can be read since torch 2.9"
)


class Coarse(TorchDispatchMode):
    """Rounds the inputs of products where a GPU would."""

    num_coarse = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op in PRODUCTS and torch.backends.cuda.matmul.fp32_precision == "tf32":
            self.num_coarse += 1
            args = [_rounded(x) if isinstance(x, torch.Tensor) and x.dtype == torch.float32 else x for x in args]
        return op(*args, **(kwargs or {}))


def _rounded(x):
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.fixture
def coarse():
    torch.set_float32_matmul_precision("high")
    try:
        with Coarse() as mode:
            yield mode
            assert torch.get_float32_matmul_precision() == "high"  # as it was left
    finally:
        torch.set_float32_matmul_precision("highest")


def features(*shape):
    """As networks give them: a spectrum over six orders of magnitude, dead channels."""
    torch.manual_seed(0)
    X = torch.relu(torch.randn(*shape)) * torch.logspace(0, -2, shape[-2])[:, None]
    X[..., ::7, :] = 0
    return X


def covariances():
    X = features(2, 40, 60)
    return X @ X.mT / 60 + 1e-4 * torch.eye(40)


def test_the_imitation_bites(coarse):
    A = covariances()
    assert relative_error(A @ A, A.double() @ A.double()) > 1e-5
    assert coarse.num_coarse > 0


# The derivative of a Cholesky factor is torch's own.
KEPT = [pair for pair in ALL_PAIRS if pair[1:] != ("denman_beavers", "unrolled")]


@pytest.mark.filterwarnings("ignore::bcnn.errors.GradientExceptionWarning")
@pytest.mark.parametrize(("function", "forward", "backward"), KEPT)
def test_every_method(function, forward, backward, request):
    A = covariances()
    G = symmetric(random_like(A))

    def both():
        options = {"lower": 1e-6} if forward in ("minimax", "inverse_scaling_squaring") else {}
        f = lambda A: FUNCTION[function](A, forward=forward, backward=backward, **options)  # noqa: E731
        return f(A), gradient(f, A, G)

    expected = both()
    coarse = request.getfixturevalue("coarse")
    before = coarse.num_coarse
    for found, right in zip(both(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=0, equal_nan=True)
    assert coarse.num_coarse == before


def test_the_default_of_accelerators(request):
    """Root and gradient by products alone, on what a head would give them."""
    A = covariances()
    G = symmetric(random_like(A))
    right = bcnn.sqrtm(A.double()), gradient(bcnn.sqrtm, A.double(), G.double())
    request.getfixturevalue("coarse")
    f = lambda A: bcnn.sqrtm(A, forward="minimax", solver="iterative")  # noqa: E731
    assert relative_error(f(A), right[0]) < 1e-4
    assert relative_error(gradient(f, A, G), right[1]) < 2e-2


@pytest.mark.parametrize("locations", [9, 60])
@pytest.mark.parametrize("preset", PAPERS)
def test_heads(preset, locations, request):
    X = features(2, 40, locations)

    def both():
        leaf = X.clone().requires_grad_()
        descriptors = Head(preset)(leaf)
        descriptors[:, 1].sum().backward()
        return descriptors.detach(), leaf.grad

    expected = both()
    coarse = request.getfixturevalue("coarse")
    before = coarse.num_coarse
    torch.testing.assert_close(both(), expected, rtol=0, atol=0)
    assert coarse.num_coarse == before


@pytest.mark.parametrize("outside", ["high", "medium"])
def test_the_setting_is_left_as_it_was_by_threads_that_overlap(outside):
    torch.set_float32_matmul_precision(outside)
    try:
        inside, done = threading.Barrier(2), threading.Barrier(2)

        def work(first):
            with full_precision(torch.eye(2)):
                inside.wait(10)
            if first:
                done.wait(10)

        threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
        for thread in threads:
            thread.start()
        done.wait(10)
        for thread in threads:
            thread.join()
        assert torch.get_float32_matmul_precision() == outside
    finally:
        torch.set_float32_matmul_precision("highest")


def test_settings_of_one_backend_are_seen_and_left():
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32"
    try:
        with full_precision(torch.eye(2)):
            assert matmul.fp32_precision == "ieee"
        assert matmul.fp32_precision == "tf32"
    finally:
        matmul.fp32_precision = "ieee"
        torch.set_float32_matmul_precision("highest")
