"""The seam: pairs, options, information, modules; and properties that hold for any spectrum."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import bcnn
from bcnn.matfun.forward import FORWARDS
from bcnn.matfun.plan import available_pairs, resolve_auto

from ..helpers import ALL_FORWARDS, call, gradient, random_like, relative_error, spd, symmetric, with_spectrum


def test_auto_is_what_the_docs_say():
    assert resolve_auto("sqrt", "cpu", 512) == ("eigen", "lyapunov")
    assert resolve_auto("sqrt", "cuda", 512) == ("minimax", "lyapunov")
    assert resolve_auto("sqrt", "cuda", 16) == ("eigen", "lyapunov")
    assert resolve_auto("log", "cpu", 512) == resolve_auto("power", "cuda", 512) == ("eigen", "loewner")
    for function in ("sqrt", "log", "power"):
        assert resolve_auto(function, "cpu", 512) in available_pairs(function)


def test_auto_forward_follows_the_backward_that_needs_an_iteration():
    A = spd()
    _, info = bcnn.sqrtm(A, backward="unrolled", return_info=True)
    assert info.num_steps > 0
    _, info = bcnn.logm(A, backward="unrolled", return_info=True)
    assert info.num_steps > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"forward": "newton_shulz"}, "unknown forward 'newton_shulz'; did you mean 'newton_schulz'"),
        ({"backward": "lyapunof"}, "unknown backward 'lyapunof'; did you mean 'lyapunov'"),
        ({"forward": "eigen", "backward": "unrolled"}, "'unrolled' needs an iterative forward.*minimax with lyapunov"),
        ({"forward": "minimax", "backward": "svd"}, "'svd' needs the eigenvectors.*eigen with lyapunov"),
        ({"forward": "inverse_scaling_squaring"}, "'inverse_scaling_squaring' is for log"),
        ({"num_iters": 3}, "unexpected option 'num_iters'.*takes precision, solver"),
        ({"algorithm": None}, "unexpected option 'algorithm'"),
        ({"backward": "unrolled", "forward": "denman_beavers", "scale": "trace"}, "unexpected option 'scale'"),
        ({"solver": "eigne"}, "unknown solver 'eigne'; did you mean 'eigen'"),
        ({"precision": "double"}, "unknown precision 'double'; Available: high, fast"),
        ({"forward": "minimax", "scale": "norm"}, "unknown scale 'norm'; Available: frobenius, trace"),
        ({"forward": "newton_schulz", "num_iters": 3, "tol": 0.1}, "`num_iters` or `tol`, got both"),
        ({"forward": "newton_schulz", "num_iters": -1}, "`num_iters` to be a whole number from 0 to 1000, got -1"),
        ({"forward": "newton_schulz", "num_iters": 2.5}, "whole number from 0 to 1000, got 2.5"),
        ({"forward": "minimax", "tol": 0.0}, "`tol` to be a number > 0, got 0.0"),
        ({"forward": ["eigen"]}, r"unknown forward \['eigen'\]"),
        ({"solver": None}, "unknown solver None"),
        ({"solver": "iterative", "solver_iters": 0}, "`solver_iters` to be a whole number from 1 to 1000, got 0"),
        ({"solver": "iterative", "solver_lower": 2.0}, "`solver_lower` to be in"),
        ({"forward": "minimax", "scale": 2.0}, "unknown scale 2.0"),
        ({"backward": "unrolled", "store": "no"}, "`store` to be True or False, got 'no'"),
        ({"backward": "svd_truncated", "tau": "a"}, "`tau` to be a number >= 0, got 'a'"),
        ({"backward": "svd", "report": 3}, "`report` to be callable, got 3"),
        ({"forward": "minimax", "lower": 2.0}, r"`lower` to be in \(0, 1\].*got 2.0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_computed(arguments, message):
    with pytest.raises(ValueError, match=f"(sqrtm|minimax|newton_schulz): .*{message}"):
        bcnn.sqrtm(torch.eye(3), **arguments)


def test_every_option_has_a_check():
    from bcnn.matfun.backward import BACKWARDS
    from bcnn.matfun.options import OPTIONS
    from bcnn.matfun.plan import INTERNAL_OPTIONS

    used = set().union(*(method.options for method in (*FORWARDS.values(), *BACKWARDS.values())))
    assert used - INTERNAL_OPTIONS == set(OPTIONS)


def test_a_refused_call_does_not_spoil_the_right_one():
    with pytest.raises(ValueError, match=r"got 7\.0"):
        bcnn.sqrtm(torch.eye(2), forward="newton_schulz", num_iters=7.0)
    assert bcnn.sqrtm(torch.eye(2), forward="newton_schulz", num_iters=7).shape == (2, 2)
    assert bcnn.sqrtm(torch.eye(2), forward="newton_schulz", num_iters=np.int64(7)).shape == (2, 2)


@pytest.mark.parametrize(
    ("p", "message"),
    [(None, "`p` to be a number"), ("a", "got 'a'"), (torch.ones(3, dtype=torch.long), "floating-point tensor")],
)
def test_a_wrong_exponent_is_refused(p, message):
    with pytest.raises(TypeError, match=f"powm: .*{message}"):
        bcnn.powm(torch.eye(2), p)
    with pytest.raises(ValueError, match=r"`p` to broadcast.*\(4,\), got shape \(3,\)"):
        bcnn.powm(torch.eye(2).expand(4, 2, 2), torch.ones(3))


def test_exponents_of_both_signs_are_checked_apart():
    batch = torch.stack([torch.zeros(2, 2), torch.eye(2)])
    assert torch.equal(bcnn.powm(batch, torch.tensor([0.5, -0.5])), batch)
    with pytest.raises(bcnn.NotPositiveDefiniteError, match=r"index \(0,\)"):
        bcnn.powm(batch, torch.tensor([-0.5, 0.5]))


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e20, 1e30])
def test_the_residual_does_not_depend_on_the_scale(scale):
    A = torch.diag(torch.tensor([1.0, 0.1, 0.001]))
    _, info = bcnn.sqrtm(A * scale, forward="newton_schulz", num_iters=1, return_info=True)
    assert info.residual.item() == pytest.approx(0.0787, abs=1e-3)


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_info(function, forward):
    A = spd(2, 3)
    Z, info = call(function, forward, return_info=True)(A)
    assert torch.equal(Z, call(function, forward)(A))
    assert info.residual.shape == (2, 3)
    assert info.residual.max() < 1e-10
    assert (info.num_steps > 0) == (not FORWARDS[forward].basis)


def test_info_of_a_zero_matrix_is_zero():
    _, info = bcnn.sqrtm(torch.zeros(3, 3), return_info=True)
    assert info.residual == 0


def test_a_cached_plan_does_not_keep_tensors_alive():
    import gc
    import weakref

    scale = torch.full((1, 1), 2.0)
    alive = weakref.ref(scale)
    bcnn.sqrtm(torch.eye(3), forward="minimax", scale=scale)
    del scale
    gc.collect()
    assert alive() is None


def test_input_without_gradient_records_none():
    assert not bcnn.sqrtm(spd()).requires_grad
    with torch.no_grad():
        assert not bcnn.sqrtm(spd().requires_grad_()).requires_grad
    with torch.inference_mode():
        assert relative_error(bcnn.sqrtm(spd()) @ bcnn.sqrtm(spd()), spd()) < 1e-13


@pytest.mark.usefixtures("two_threads")
def test_inference_mode_in_a_batch_side_by_side():
    A = spd(3, d=128)
    with torch.inference_mode():
        Z = bcnn.sqrtm(A)
    assert torch.equal(Z, bcnn.sqrtm(A))


def test_forward_mode_without_storage_is_refused():
    f = call("sqrt", "newton_schulz", "unrolled", store=False, num_iters=3)
    with pytest.raises(NotImplementedError, match=r"sqrtm: forward-mode.*store=True"):
        torch.func.jvp(f, (spd(),), (spd(),))


def test_forward_mode_of_an_unfinished_iteration():
    A, dA = spd(), spd(seed=3)
    f = call("sqrt", "newton_schulz", "unrolled", num_iters=2)
    _, dZ = torch.func.jvp(f, (A,), (dA,))
    difference = (f(A + 1e-6 * dA) - f(A - 1e-6 * dA)) / 2e-6
    assert relative_error(dZ, difference) < 1e-7


def test_sparse_and_odd_dtypes_are_refused():
    with pytest.raises(TypeError, match="expected a dense `A`"):
        bcnn.sqrtm(torch.eye(2).to_sparse())
    with pytest.raises(TypeError, match=r"got torch\.float8"):
        bcnn.sqrtm(torch.eye(2).to(torch.float8_e4m3fn))


def test_eigenvectors_are_kept_from_the_forward_pass(monkeypatch):
    A = spd().requires_grad_()
    Z = bcnn.sqrtm(A)
    monkeypatch.setattr(torch.linalg, "eigh", None)  # any call would fail
    Z.sum().backward()
    assert A.grad.isfinite().all()


def test_blocks_save_products():
    A, G = spd(2, d=384, dtype=torch.float32), random_like(spd(2, d=384, dtype=torch.float32))
    with FlopCounterMode(display=False) as counter:
        gradient(bcnn.sqrtm, A, G)
    assert counter.get_total_flops() / (2 * 2 * 384**3) == pytest.approx(3 * 5 / 8 + 2)


# --- modules ----------------------------------------------------------------------------------------------------------


def test_modules_are_their_functions():
    A = spd(2)
    assert torch.equal(bcnn.MatrixSqrt()(A), bcnn.sqrtm(A))
    assert torch.equal(bcnn.MatrixLog()(A), bcnn.logm(A))
    assert torch.equal(bcnn.MatrixPower(0.3)(A), bcnn.powm(A, 0.3))
    newton = bcnn.MatrixSqrt(forward="newton_schulz", num_iters=3)
    assert torch.equal(newton(A), bcnn.sqrtm(A, forward="newton_schulz", num_iters=3))
    assert "num_iters=3" in repr(newton)
    assert "p=0.3, learnable=True" in repr(bcnn.MatrixPower(0.3, learnable=True))


def test_modules_refuse_a_wrong_option_when_they_are_made():
    with pytest.raises(ValueError, match="logm: unknown forward 'nope'"):
        bcnn.MatrixLog(forward="nope")
    with pytest.raises(ValueError, match="sqrtm: unexpected option 'tau'"):
        bcnn.MatrixSqrt(tau=1.0)
    assert "p=?" in repr(bcnn.MatrixPower(learnable=True).to("meta"))


def test_modules_can_be_copied_pickled_and_stored():
    layer = bcnn.MatrixPower(0.3, learnable=True, precision="fast")
    again = pickle.loads(pickle.dumps(copy.deepcopy(layer)))
    assert torch.equal(again(spd()), layer(spd()))
    other = bcnn.MatrixPower(0.7, learnable=True)
    other.load_state_dict(layer.state_dict())
    assert other.p == layer.p


def test_an_exponent_can_be_learned():
    A = spd(4, cond=50)
    target = bcnn.powm(A, 0.35)
    layer = bcnn.MatrixPower(0.8, learnable=True).double()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (layer(A) - target).square().sum().backward()
        optimizer.step()
    assert layer.p.item() == pytest.approx(0.35, abs=1e-3)


# --- properties -------------------------------------------------------------------------------------------------------

spectra = st.lists(st.floats(1e-4, 1e4), min_size=1, max_size=6)
mild = st.lists(st.floats(0.1, 10.0), min_size=1, max_size=6)  # a finite difference needs room for its step
semidefinite = st.lists(st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-3, 1e3)), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(spectra)
def test_log_and_powers_are_consistent(sigma):
    A = with_spectrum(sigma)
    size = torch.linalg.matrix_norm(A)
    assert torch.linalg.matrix_norm(torch.linalg.matrix_exp(bcnn.logm(A)) - A) < 1e-9 * size
    assert torch.linalg.matrix_norm(bcnn.powm(A, 0.5) - bcnn.sqrtm(A)) < 1e-12 * size.sqrt()
    assert torch.linalg.matrix_norm(bcnn.powm(A, 0.3) @ bcnn.powm(A, 0.7) - A) < 1e-9 * size
    inverse = bcnn.powm(A, -1.0)
    assert torch.allclose(inverse @ A, torch.eye(len(sigma), dtype=A.dtype), atol=1e-6)


@settings(deadline=None, max_examples=60)
@given(semidefinite)
def test_any_semidefinite_spectrum_has_a_root_and_a_finite_gradient(sigma):
    A = with_spectrum(sigma)
    scale = max(max(sigma), 1e-300)
    Z = bcnn.sqrtm(A)
    assert torch.linalg.matrix_norm(Z @ Z - A) < 1e-12 * scale
    G = random_like(A)
    for function in ("sqrt", "power"):
        X = gradient(call(function), A, G)
        assert X.isfinite().all()
    # Through features, A = X X^T, the gradient exists everywhere and is that of the thin singular values.
    features = with_spectrum([s**0.5 for s in sigma]).requires_grad_()
    bcnn.sqrtm(features @ features.mT).diagonal().sum().backward()  # the nuclear norm
    rank = sum(s > 0 for s in sigma)
    assert torch.linalg.matrix_norm(features.grad).item() == pytest.approx(rank**0.5, abs=1e-4)


@settings(deadline=None, max_examples=60)
@given(mild, st.floats(-1.5, 2.5))
def test_power_gradient_matches_a_finite_difference(sigma, p):
    A = with_spectrum(sigma)
    A = A / torch.linalg.matrix_norm(A)
    dA = random_like(A)
    dA = (dA + dA.mT) / 2
    exponent = torch.tensor(p, dtype=torch.float64, requires_grad=True)
    G = random_like(A, seed=3)
    leaf = A.clone().requires_grad_()
    X, slope = torch.autograd.grad((bcnn.powm(leaf, exponent) * G).sum(), (leaf, exponent))
    h = 1e-5 * float(torch.linalg.eigvalsh(A).min())
    difference = (bcnn.powm(A + h * dA, p) - bcnn.powm(A - h * dA, p)) / (2 * h)
    size = (
        torch.linalg.matrix_norm(difference) + torch.linalg.matrix_norm(bcnn.powm(A, p))
    ) * torch.linalg.matrix_norm(G)
    assert abs((X * dA).sum() - (difference * G).sum()) < 1e-6 * size
    difference = ((bcnn.powm(A, p + 1e-6) - bcnn.powm(A, p - 1e-6)) * G).sum() / 2e-6
    assert slope.item() == pytest.approx(difference.item(), rel=1e-5, abs=1e-6 * float(size))


# --- the short way, without further derivatives -----------------------------------------------------------------------


def test_forward_over_reverse_of_a_linear_loss():
    """The gradient's right side is constant then; what depends on A is Z alone."""
    from torch.autograd import forward_ad

    A, V, G = spd(d=4), symmetric(random_like(spd(d=4))), symmetric(random_like(spd(d=4), seed=3))

    def gradient(A):
        return torch.autograd.grad((bcnn.sqrtm(A) * G).sum(), A, create_graph=A.requires_grad)[0]

    leaf = A.clone().requires_grad_()
    (exact,) = torch.autograd.grad(gradient(leaf), leaf, V)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(A.clone().requires_grad_(), V)
        (g,) = torch.autograd.grad((bcnn.sqrtm(dual) * G).sum(), dual)
        tangent = forward_ad.unpack_dual(g).tangent
    assert relative_error(tangent, exact) < 1e-10


@pytest.mark.parametrize("call", [bcnn.logm, lambda A: bcnn.powm(A, 0.3)], ids=["logm", "powm"])
def test_forward_over_reverse_is_refused_where_there_is_none(call):
    from torch.autograd import forward_ad

    A = spd(d=4)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(A.clone().requires_grad_(), A)
        total = call(dual).sum()
        with pytest.raises(bcnn.SecondDerivativeError):
            torch.autograd.grad(total, dual)


@pytest.mark.parametrize("call", [bcnn.sqrtm, lambda A, **o: bcnn.powm(A, 0.3, **o)], ids=["sqrtm", "powm"])
def test_gradients_can_be_traced(call):
    from torch.fx.experimental.proxy_tensor import make_fx

    A = spd(2, d=4)

    def gradient(A):
        leaf = A.detach().requires_grad_()
        return torch.autograd.grad(call(leaf, check=False).sum(), leaf)[0]

    assert torch.allclose(make_fx(gradient)(A)(A), gradient(A))


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e-16, 1e-30])
def test_the_gradient_of_a_small_logarithm_in_float32(scale):
    A = (scale * torch.eye(3)).requires_grad_()
    bcnn.logm(A, precision="fast").diagonal().sum().backward()
    assert torch.allclose(A.grad.diagonal() * scale, torch.ones(3), rtol=1e-5)


def test_nan_stays_nan_backwards():
    A = torch.tensor([[[4.0]], [[torch.nan]]], requires_grad=True)
    bcnn.sqrtm(A, check=False).sum().backward()
    assert A.grad[0].item() == 0.25
    assert A.grad[1].isnan().all()


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (torch.full((3, 3), torch.nan), bcnn.NotFiniteError),
        (torch.full((3, 3), torch.inf), bcnn.NotFiniteError),
        (torch.tensor([[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]]), ValueError),
        (torch.diag(torch.tensor([1.0, 1.0, -1.0])), bcnn.NotPositiveDefiniteError),
    ],
    ids=["NaN", "infinite", "asymmetric", "indefinite"],
)
@pytest.mark.parametrize("unit", [1e-20, 1.0, 1e20])
def test_one_bad_matrix_among_good_ones_of_any_size_is_found(bad, error, unit):
    good = torch.stack([torch.eye(3), 1e15 * torch.eye(3), 1e-15 * torch.eye(3)])
    with pytest.raises(error):
        bcnn.sqrtm(torch.cat([good, (bad * unit)[None]]))
    bcnn.sqrtm(good)


def test_a_torch_that_hides_its_transforms_is_not_trusted(monkeypatch):
    """Forward mode over forward mode would be silently wrong, so where it cannot be told from one it is refused."""
    A = spd(d=3)
    monkeypatch.setattr("torch._functorch.pyfunctorch.retrieve_all_functorch_interpreters", None, raising=False)
    monkeypatch.delattr("torch._functorch.pyfunctorch.retrieve_all_functorch_interpreters")
    with pytest.raises(NotImplementedError, match="does not say whether several"):
        torch.func.jvp(bcnn.sqrtm, (A,), (A,))
    assert torch.func.grad(lambda x: bcnn.sqrtm(x).sum())(A).isfinite().all()


def test_an_exactly_symmetric_matrix_is_taken_as_it_is():
    A = spd(dtype=torch.float32).requires_grad_()
    assert torch.equal(A, A.mT)
    with torch.profiler.profile() as profile:
        bcnn.sqrtm(A)
    assert "aten::lerp" not in {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_an_exactly_symmetric_matrix_with_an_infinite_entry_is_refused(value):
    A = torch.eye(4).repeat(3, 1, 1)
    A[1, 2, 0] = A[1, 0, 2] = value
    with pytest.raises(bcnn.errors.NotFiniteError, match="1 of 3 matrices, first at index \\(1,\\)"):
        bcnn.sqrtm(A)


def test_almost_symmetric_matrices_give_the_root_and_the_gradient_of_their_symmetric_part():
    S, grad_Z = spd(), random_like(spd())
    skew = torch.zeros_like(S)
    skew[..., 0, 1], skew[..., 1, 0] = 1e-9, -1e-9
    exact, near = (gradient(bcnn.sqrtm, M, grad_Z) for M in (S, S + skew))
    assert relative_error(exact.mT, exact) < 1e-14
    assert relative_error(near, exact) < 1e-12
    assert relative_error(bcnn.sqrtm(S + skew), bcnn.sqrtm(S)) < 1e-14
