"""What every forward algorithm and every gradient rule promises, read from the registries."""

import warnings

import pytest
import torch

import bcnn
from bcnn.matfun.backward import BACKWARDS
from bcnn.matfun.forward import FORWARDS

from ..helpers import (
    ALL_FORWARDS,
    ALL_PAIRS,
    CONVERGED,
    EXACT_PAIRS,
    EXPONENT,
    FORWARD_TOLERANCE,
    FUNCTION,
    GRADIENT_TOLERANCE,
    LAW,
    SEMIDEFINITE_FORWARDS,
    call,
    gradient,
    random_like,
    reference,
    reference_gradient,
    relative_error,
    spd,
    symmetric,
    with_spectrum,
)

pytestmark = pytest.mark.filterwarnings("ignore::bcnn.errors.GradientExceptionWarning")


def few(forward, lower=0.3):
    """Options for few steps, where convergence is not the point."""
    if "lower" in FORWARDS[forward].options:
        return {"lower": lower}
    return {} if FORWARDS[forward].basis else {"num_iters": 3}


def test_the_lists_cover_the_registries():
    assert {f for _, f in ALL_FORWARDS} == set(FORWARDS)
    assert {b for _, _, b in ALL_PAIRS} == set(BACKWARDS)
    assert set(FORWARD_TOLERANCE) == set(FORWARDS)
    assert set(GRADIENT_TOLERANCE) == {name for name, rule in BACKWARDS.items() if rule.exact}
    assert set(CONVERGED) == {name for name, method in FORWARDS.items() if not method.basis}


# --- forward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_agrees_with_scipy(function, forward):
    A = spd(3)
    assert relative_error(call(function, forward)(A), reference(function, A)) < FORWARD_TOLERANCE[forward]


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_obeys_its_law(function, forward):
    A = spd()
    assert relative_error(LAW[function](call(function, forward)(A)), A) < 10 * FORWARD_TOLERANCE[forward]


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
@pytest.mark.parametrize("batch", [(), (1,), (2, 3), (0,), (2, 0)])
def test_any_leading_dimensions_equal_a_loop(function, forward, batch):
    A = spd(*batch)
    f = call(function, forward)
    Z = f(A)
    assert Z.shape == A.shape
    flat = [f(a) for a in A.reshape(-1, 6, 6)]
    if flat:
        assert torch.allclose(Z.reshape(-1, 6, 6), torch.stack(flat), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_batch_large_enough_for_threads_and_blocks_equals_a_loop(function, forward, two_threads):
    A = spd(2, d=257, cond=10)  # beyond the limits of side_by_side and symmetric_product, and odd
    f = call(function, forward, check=False, **few(forward))
    assert relative_error(f(A), torch.stack([f(a) for a in A])) < 1e-11


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_result_is_symmetric_and_input_untouched(function, forward):
    A = spd(2).transpose(0, 1).contiguous().transpose(0, 1)  # strides of its own
    before, strides = A.clone(), A.stride()
    Z = call(function, forward)(A)
    assert torch.equal(A, before)
    assert A.stride() == strides
    assert relative_error(Z, symmetric(Z)) < 1e-11


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_only_the_symmetric_part_counts(function, forward):
    A = spd()
    skew = torch.triu(torch.full_like(A, 1e-6), 1)
    assert relative_error(call(function, forward)(A + skew - skew.mT), call(function, forward)(A)) < 1e-11


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_dtype_is_kept_and_half_precision_is_computed_in_float32(function, forward, dtype):
    A = spd(2, dtype=dtype)
    f = call(function, forward, **({"lower": 1e-3} if "lower" in FORWARDS[forward].options else {}))
    Z = f(A)
    assert Z.dtype == dtype
    exact = reference(function, symmetric(A.double()))  # of the rounded input
    unit = torch.finfo(dtype).eps
    assert relative_error(Z, exact) < max(4 * unit, 1e-12) * (1 if unit > 1e-4 else 100)
    assert gradient(f, A, random_like(A)).dtype == dtype


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_autocast_leaves_an_island_of_full_precision(function, forward):
    A, G = spd(2, dtype=torch.float32), random_like(spd(2, dtype=torch.float32))
    f = call(function, forward, **({"lower": 1e-3} if "lower" in FORWARDS[forward].options else {}))
    Z, X = f(A), gradient(f, A, G)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ((A @ A).dtype) == torch.bfloat16  # autocast is on
        leaf = A.clone().requires_grad_()
        Z_autocast = f(leaf)
        (X_autocast,) = torch.autograd.grad(Z_autocast, leaf, G)
    assert torch.equal(Z_autocast, Z)
    assert torch.equal(X_autocast, X)


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_tiny_and_huge_matrices(function, forward, scale):
    A = spd(dtype=torch.float32)
    f = call(function, forward, **({"lower": 1e-3} if "lower" in FORWARDS[forward].options else {}))
    exact = reference(function, (A * scale).double())
    assert relative_error(f(A * scale), exact) < 2e-5
    assert gradient(f, A * scale, random_like(A)).isfinite().all()


@pytest.mark.parametrize(("function", "forward"), SEMIDEFINITE_FORWARDS)
def test_zero_matrix_gives_zero_and_a_finite_gradient(function, forward):
    A = torch.zeros(2, 4, 4)
    f = call(function, forward)
    assert torch.equal(f(A), A)
    assert gradient(f, A, random_like(A)).isfinite().all()


@pytest.mark.parametrize(("function", "forward"), SEMIDEFINITE_FORWARDS)
def test_rank_deficient_matrices(function, forward):
    A = with_spectrum([1.0, 0.5, 0.25, 0.0, 0.0, 0.0])
    sigma, U = torch.linalg.eigh(A)
    g = {"sqrt": torch.sqrt, "power": lambda s: s**0.3}[function]
    exact = (U * torch.where(sigma > 1e-9, g(sigma.clamp_min(0)), 0.0)) @ U.mT
    # eigenvalues of 1e-17 have roots of 1e-8 and, for p = 0.3, of 1e-5
    assert relative_error(call(function, forward)(A), exact) < (1e-6 if function == "sqrt" else 1e-4)


# --- gradients --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "forward", "backward"), EXACT_PAIRS)
def test_gradient_agrees_with_the_block_formula(function, forward, backward):
    A = spd(2)
    G = random_like(A)
    exact = reference_gradient(function, A, G)
    X = gradient(call(function, forward, backward), A, G)
    assert relative_error(X, exact) < max(GRADIENT_TOLERANCE[backward], FORWARD_TOLERANCE[forward])
    assert torch.allclose(X, X.mT, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("function", "forward", "backward"), EXACT_PAIRS)
def test_gradcheck(function, forward, backward):
    A = spd(d=4, cond=10).requires_grad_()
    assert torch.autograd.gradcheck(call(function, forward, backward), (A,))


@pytest.mark.parametrize(("function", "forward", "backward"), [p for p in EXACT_PAIRS if p[2] != "svd"])
@pytest.mark.parametrize("spectrum", [[2.0] * 3, [1.0, 3.0, 3.0], [1.0, 1.0 + 1e-9, 2.0]])
def test_gradcheck_on_repeated_eigenvalues(function, forward, backward, spectrum):
    A = with_spectrum(spectrum).requires_grad_()
    assert torch.autograd.gradcheck(call(function, forward, backward), (A,))


@pytest.mark.parametrize(("function", "forward", "backward"), [p for p in ALL_PAIRS if p[2] != "svd"])
@pytest.mark.parametrize("case", ["identity", "ridge", "rank_deficient_with_ridge", "dead_channels_with_ridge"])
def test_gradient_is_finite_at_the_edges_in_float32(function, forward, backward, case):
    d = 8
    X = torch.relu(torch.randn(d, {"rank_deficient_with_ridge": 3}.get(case, 20)))
    X[d // 2 :] *= case != "dead_channels_with_ridge"
    A = {"identity": 2 * torch.eye(d), "ridge": 1e-5 * torch.eye(d)}.get(
        case, X @ X.mT / X.shape[1] + 1e-4 * torch.eye(d)
    )
    f = call(function, forward, backward, **({"lower": 1e-6} if "lower" in FORWARDS[forward].options else {}))
    assert f(A).isfinite().all()
    assert gradient(f, A, random_like(A)).isfinite().all()


SINGULAR_PAIRS = [
    (f, m, b) for f, m, b in EXACT_PAIRS if (f, m) in SEMIDEFINITE_FORWARDS and b in ("lyapunov", "loewner")
]


@pytest.mark.parametrize(("function", "forward", "backward"), SINGULAR_PAIRS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("options", [{}, {"precision": "fast"}, {"solver": "iterative"}], ids=str)
def test_features_see_the_true_gradient_at_a_singular_matrix(function, forward, backward, dtype, options):
    if not set(options) <= FORWARDS[forward].options | BACKWARDS[backward].options:
        pytest.skip("not an option of this pair")
    X = torch.relu(torch.randn(24, 9, dtype=torch.float64)) * torch.logspace(0, -1, 24, dtype=torch.float64)[:, None]
    G = symmetric(random_like(torch.zeros(24, 24, dtype=torch.float64)))
    # The independent way: f(A) = X V g(S) S^-1 V^T X^T / n from the n x n Gram matrix, of full rank, by autograd.
    leaf = X.clone().requires_grad_()
    s, V = torch.linalg.eigh(leaf.mT @ leaf / 9)
    g = s.sqrt() if function == "sqrt" else s**EXPONENT
    Z_exact = leaf @ (V * (g / s)) @ V.mT @ leaf.mT / 9
    (exact,) = torch.autograd.grad((Z_exact * G).sum(), leaf)
    leaf = X.to(dtype).requires_grad_()
    f = call(function, forward, backward, **{**options, **({"num_iters": 18} if forward == "newton_schulz" else {})})
    Z = f(leaf @ leaf.mT / 9) if "lower" not in FORWARDS[forward].options else f(leaf @ leaf.mT / 9, lower=1e-5)
    (gradient_X,) = torch.autograd.grad((Z * G.to(dtype)).sum(), leaf)
    # Of the null space only rounding noise is known, a tenth of a unit, and g of that is how well g(0) can be known.
    noise = (0.1 * torch.finfo(dtype).eps) ** (0.5 if function == "sqrt" else EXPONENT)
    assert relative_error(Z, Z_exact) < 10 * noise
    assert relative_error(gradient_X, exact) < (0.1 if "solver" in options else 10 * noise)


@pytest.mark.parametrize(("function", "forward", "backward"), ALL_PAIRS)
def test_gradient_of_an_empty_batch(function, forward, backward):
    A = torch.zeros(0, 3, 3)
    assert gradient(call(function, forward, backward), A, A).shape == (0, 3, 3)


# --- torch.func and second derivatives --------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "forward", "backward"), ALL_PAIRS)
def test_vmap_jacrev_and_jvp_agree_with_plain_autograd(function, forward, backward):
    A, G = spd(3, d=4, cond=10), random_like(spd(3, d=4))
    f = call(function, forward, backward)
    assert torch.allclose(torch.func.vmap(f)(A), f(A), rtol=0, atol=1e-13)
    assert torch.allclose(torch.func.vmap(f, in_dims=1)(torch.stack([A, A], 1)), f(A).expand(2, -1, -1, -1), atol=1e-12)
    X = gradient(f, A, G)
    _, pullback = torch.func.vjp(f, A)
    assert torch.allclose(pullback(G)[0], X, rtol=1e-12, atol=1e-12)
    by_rows = torch.func.jacrev(f)(A[0])  # vmap over the backward pass
    assert torch.allclose(torch.einsum("ij,ijkl->kl", G[0], by_rows), X[0], rtol=1e-9, atol=1e-9)
    nested = torch.func.vmap(torch.func.jacrev(f))(A)  # vmap over vmap
    assert torch.allclose(nested[0], by_rows, rtol=1e-9, atol=1e-9)
    if BACKWARDS[backward].exact:  # the derivative is self-adjoint: <G, J dA> = <J G, dA>
        dA = symmetric(random_like(A, seed=2))
        _, dZ = torch.func.jvp(f, (A,), (dA,))
        assert torch.allclose((dZ * G).sum(), (X * dA).sum(), rtol=1e-6)


@pytest.mark.parametrize(("function", "forward", "backward"), ALL_PAIRS)
def test_second_derivatives_are_right_or_refused(function, forward, backward):
    A = spd(d=3, cond=4).requires_grad_()
    f = call(function, forward, backward, **({"num_iters": 6} if forward == "denman_beavers" else {}))
    if BACKWARDS[backward].second or backward == "unrolled":
        assert torch.autograd.gradgradcheck(f, (A,), atol=1e-4)
        hessian = torch.func.hessian(lambda A: (f(A) ** 3).sum())(A.detach())  # forward over reverse
        again = torch.autograd.functional.hessian(lambda A: (f(A) ** 3).sum(), A.detach())
        assert torch.allclose(hessian, again, rtol=1e-6, atol=1e-8)
        return
    (X,) = torch.autograd.grad(f(A).sum(), A, create_graph=True)  # dL/dZ constant: the path through A alone
    remedy = "no rule of powm has them" if function == "power" else "use .*unrolled"
    with pytest.raises(bcnn.SecondDerivativeError, match=f"backward={backward!r}; {remedy}"):
        X.sum().backward()
    with pytest.raises(bcnn.SecondDerivativeError):
        torch.func.jacfwd(torch.func.jacfwd(lambda A: (f(A) ** 3).sum()))(A.detach())
    with pytest.raises(bcnn.SecondDerivativeError):
        torch.func.hessian(lambda A: (f(A) ** 3).sum())(A.detach())


def test_second_derivative_of_the_unrolled_rule_without_storage_is_refused():
    A = spd(d=3).requires_grad_()
    (X,) = torch.autograd.grad(call("sqrt", "minimax", "unrolled", store=False)(A).sum(), A, create_graph=True)
    with pytest.raises(bcnn.SecondDerivativeError, match="unrolled"):
        X.sum().backward()


ITERATIVE = [p for p in ALL_PAIRS if not FORWARDS[p[1]].basis and p[2] in ("lyapunov", "unrolled")]


# Compiling takes seconds, and the other way to store or to solve is the same for all forwards.
OTHER_WAYS = {"unrolled": {"store": False}, "lyapunov": {"solver": "iterative", "solver_iters": 4}}
COMPILED = [(*pair, {}) for pair in ITERATIVE]
COMPILED += [(*pair, OTHER_WAYS[pair[2]]) for pair in ITERATIVE if pair[1] == "newton_schulz"]


@pytest.mark.parametrize(("function", "forward", "backward", "options"), COMPILED)
def test_compiles_without_graph_breaks(function, forward, backward, options):
    f = call(function, forward, backward, check=False, **options, **few(forward, lower=0.7))
    A, G = spd(2, d=5), random_like(spd(2, d=5))
    torch._dynamo.reset()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        leaf = A.clone().requires_grad_()
        Z = compiled(leaf)
        assert torch.allclose(Z, f(A), rtol=0, atol=1e-13)
        assert torch.allclose(torch.autograd.grad(Z, leaf, G)[0], gradient(f, A, G), rtol=1e-10, atol=1e-10)


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_bad_input_is_named(function, forward):
    f = call(function, forward)
    name = {"sqrt": "sqrtm", "log": "logm", "power": "powm"}[function]
    A = spd(3)
    with pytest.raises(ValueError, match=rf"{name}: expected `A` of shape \(\.\.\., d, d\).*got \(2, 3\)"):
        f(torch.zeros(2, 3))
    with pytest.raises(ValueError, match="shape"):
        f(torch.zeros(0, 0))
    with pytest.raises(TypeError, match=f"{name}: expected a real floating-point `A`, got torch.int64"):
        f(torch.eye(2, dtype=torch.long))
    with pytest.raises(TypeError, match=r"got torch\.complex"):
        f(torch.eye(2, dtype=torch.complex64))
    with pytest.raises(TypeError, match="got list"):
        f([[1.0]])
    bad = A.clone()
    bad[1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match=rf"{name}: expected finite entries.*1 of 3 matrices, first at index \(1,\)"):
        f(bad)
    bad = A.clone()
    bad[2, 0, 1] += 0.1
    with pytest.raises(ValueError, match=rf"{name}: expected symmetric matrices.*1 of 3.*index \(2,\)"):
        f(bad)
    with pytest.raises(bcnn.NotPositiveDefiniteError, match=r"1 of 1 matrices are not positive def.*-1\.0e-01.*eps"):
        f(with_spectrum([1.0, 0.5, -0.1]))


@pytest.mark.parametrize(("function", "forward"), ALL_FORWARDS)
def test_checks_can_be_turned_off(function, forward):
    bad = spd()
    bad[0, 1] += 0.01  # the symmetric part is still definite
    assert relative_error(call(function, forward, check=False)(bad), call(function, forward)(symmetric(bad))) < 1e-12


def test_every_function_has_a_wrapper_that_is_public():
    from bcnn.matfun.functions import FUNCTIONS

    assert set(FUNCTIONS) == set(FUNCTION)
    assert all(hasattr(bcnn, f.wrapper) for f in FUNCTIONS.values())
