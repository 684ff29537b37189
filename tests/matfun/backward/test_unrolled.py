"""The gradient of the iteration itself: with and without stored iterates it is the same, and memory is not."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import bcnn

from ...helpers import gradient, random_like, relative_error, spd

CASES = [
    ({"forward": "newton_schulz", "num_iters": 3}, "sqrtm"),  # far from converged
    ({"forward": "newton_schulz", "num_iters": 15, "scale": "trace"}, "sqrtm"),
    ({"forward": "newton_schulz", "tol": 1e-3}, "sqrtm"),
    ({"forward": "minimax", "num_iters": 2}, "sqrtm"),
    ({"forward": "minimax", "tol": 1e-5, "lower": 1e-3}, "sqrtm"),
    ({"forward": "denman_beavers", "num_iters": 2}, "sqrtm"),
    ({"forward": "denman_beavers", "num_iters": 3, "scaled": False}, "sqrtm"),
    ({"forward": "inverse_scaling_squaring", "lower": 1e-3}, "logm"),
    ({"forward": "inverse_scaling_squaring", "lower": 1e-3, "scale": "trace"}, "logm"),
]


@pytest.mark.parametrize(("options", "function"), CASES, ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
def test_the_same_gradient_as_autograd(options, function, dtype, tolerance):
    function = getattr(bcnn, function)
    A = spd(3, dtype=dtype)
    G = random_like(A)
    stored = gradient(lambda A: function(A, backward="unrolled", **options), A, G)
    recomputed = gradient(lambda A: function(A, backward="unrolled", store=False, **options), A, G)
    assert relative_error(recomputed, stored) < tolerance
    assert stored.isfinite().all()


def test_it_is_the_gradient_of_the_approximation_not_of_the_root():
    A = spd(cond=1e4).requires_grad_()
    few = {"forward": "newton_schulz", "num_iters": 2, "store": False}
    assert torch.autograd.gradcheck(lambda A: bcnn.sqrtm(A, backward="unrolled", **few), (A,))
    G = random_like(A)
    assert relative_error(gradient(lambda A: bcnn.sqrtm(A, backward="unrolled", **few), A, G),
                          gradient(bcnn.sqrtm, A, G)) > 0.1  # fmt: skip


def test_the_zero_matrix():
    for store in (True, False):
        X = gradient(
            lambda A, store=store: bcnn.sqrtm(A, forward="newton_schulz", backward="unrolled", store=store),
            torch.zeros(3, 3),
            torch.eye(3),
        )
        assert X.isfinite().all()


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of tensors alive that were made inside the block."""

    def __init__(self):
        super().__init__()
        self.alive, self.peak, self.seen = 0, 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self.seen:
                    self.seen.add(storage._cdata)
                    self.alive += storage.nbytes()
                    weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.peak = max(self.peak, self.alive)
        return result

    def _freed(self, key, size):
        self.seen.discard(key)
        self.alive -= size


def peak(num_iters, store):
    A = spd(d=64, dtype=torch.float32)
    with PeakMemory() as memory:
        gradient(
            lambda A: bcnn.sqrtm(A, forward="newton_schulz", num_iters=num_iters, backward="unrolled", store=store),
            A,
            torch.ones(64, 64),
        )
    return memory.peak / A.nbytes


def saved(num_iters, store):
    """Matrices kept between the forward and the backward pass."""
    kept = []
    A = spd(d=16).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.nbytes) or t, lambda t: t):
        bcnn.sqrtm(A, forward="newton_schulz", num_iters=num_iters, backward="unrolled", store=store)
    return sum(kept) / A.nbytes


def test_memory_does_not_grow_with_the_number_of_steps():
    assert peak(40, store=False) == pytest.approx(peak(5, store=False), abs=1)
    assert saved(40, store=False) == saved(5, store=False) <= 4
    assert peak(40, store=True) > 3 * peak(5, store=True)  # so the measurement sees what it should
    assert saved(40, store=True) > 4 * saved(5, store=True)
