"""What once was silently wrong, case by case."""

import warnings
from functools import partial

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import bcnn
from bcnn.pooling.head import Head
from tests.helpers import gradient, relative_error, spd, symmetric


def exact_root(A):
    sigma, U = torch.linalg.eigh(A.double())
    return (U * sigma.clamp_min(0).sqrt()[..., None, :]) @ U.mT


# --- singular matrices by products alone ------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "rank"), [(8, 1), (16, 4), (64, 10)])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-6), (torch.float32, 1e-3)])
def test_minimax_on_singular_matrices(d, rank, dtype, bound):
    """The bound is the square root of a few units of rounding: all that a zero eigenvalue can be known to."""
    torch.manual_seed(19)
    V = torch.randn(200, d, rank, dtype=torch.float64)
    Z = bcnn.sqrtm((V @ V.mT).to(dtype), forward="minimax")
    assert relative_error(Z, exact_root(V @ V.mT)) < bound


@pytest.mark.parametrize(("options", "bound"), [({}, 1e-5), ({"solver": "iterative"}, 0.05)])
def test_gradient_through_minimax_on_singular_matrices(options, bound):
    torch.manual_seed(19)
    V = torch.randn(200, 8, 1, dtype=torch.float64)
    G = symmetric(torch.randn(200, 8, 8, dtype=torch.float64))

    def by_factor(**methods):
        leaf = V.clone().requires_grad_()
        return torch.autograd.grad(bcnn.sqrtm(leaf @ leaf.mT, **methods), leaf, G)[0]

    found, expected = by_factor(forward="minimax", **options), by_factor()
    assert relative_error(found, expected) < bound


def test_minimax_on_singular_matrices_in_bfloat16():
    torch.manual_seed(0)
    V = torch.randn(200, 16, 4)
    A = (V @ V.mT).bfloat16()
    Z = bcnn.sqrtm(A, forward="minimax", check=False)
    assert Z.isfinite().all()
    by_eigh = relative_error(bcnn.sqrtm(A, forward="eigen", check=False), exact_root(V.double() @ V.double().mT))
    assert relative_error(Z, exact_root(V.double() @ V.double().mT)) < 2 * by_eigh


# --- derivatives of steps ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("derive", [torch.func.hessian, lambda f: torch.func.jacrev(torch.func.jacrev(f)),
                                    lambda f: partial(torch.autograd.functional.hessian, f)])  # fmt: skip
def test_second_derivatives_that_rounding_spoils_are_refused(derive):
    f = partial(bcnn.sqrtm, forward="minimax", backward="unrolled")
    A = spd(d=2, dtype=torch.float32)
    with pytest.raises(bcnn.SecondDerivativeError, match=r"spoilt by rounding in float32; pass float64"):
        derive(lambda A: (f(A) ** 2).sum())(A)
    right = torch.func.hessian(lambda A: (bcnn.sqrtm(A) ** 3).sum())(A.double())
    torch.testing.assert_close(torch.func.hessian(lambda A: (f(A) ** 3).sum())(A.double()), right, rtol=1e-6, atol=1e-6)


def test_first_derivatives_of_steps_remain_in_float32():
    A, G = spd(3, d=4, dtype=torch.float32), symmetric(torch.randn(3, 4, 4))
    f = partial(bcnn.sqrtm, forward="minimax", backward="unrolled")
    X = gradient(f, A, G)
    assert relative_error(X, gradient(bcnn.sqrtm, A.double(), G.double())) < 1e-3
    _, dZ = torch.func.jvp(f, (A,), (G,))
    assert relative_error(dZ, gradient(bcnn.sqrtm, A.double(), G.double())) < 1e-3
    assert torch.func.vmap(torch.func.jacrev(f))(A).isfinite().all()


def test_third_derivatives_of_steps():
    A = spd(d=2, cond=4)
    third = [
        torch.func.jacrev(torch.func.hessian(lambda A, f=f: (f(A) ** 3).sum()))(A)
        for f in (bcnn.sqrtm, partial(bcnn.sqrtm, forward="newton_schulz", backward="unrolled", num_iters=10))
    ]
    torch.testing.assert_close(*third)


# --- outside of the range ---------------------------------------------------------------------------------------------


def test_logarithm_by_products_refuses_what_it_does_not_cover():
    A = torch.diag(torch.tensor([1.0, 1e-12]))
    with pytest.raises(bcnn.NotPositiveDefiniteError, match=r"covers eigenvalues from 1\.2e-07 of the scale"):
        bcnn.logm(A, forward="inverse_scaling_squaring")
    Z = bcnn.logm(A.double(), forward="inverse_scaling_squaring")
    assert Z[1, 1] == pytest.approx(-27.631021, rel=1e-5)


def test_a_small_power_of_noise_is_told():
    torch.manual_seed(0)
    V = torch.randn(16, 2)
    with pytest.warns(bcnn.NoisySpectrumWarning, match=r"eigenvalues lie within the rounding of A.*up to 0\.2 of"):
        bcnn.powm(V @ V.T, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bcnn.powm(V @ V.T, 0.5)  # small in the result, too
        bcnn.powm(V @ V.T + 1e-3 * torch.eye(16), 0.1)


def test_a_small_power_of_what_was_rounded_to_zero_is_told():
    A = torch.tensor([[0.7623, -0.4257], [-0.4257, 0.2377]])
    A = A - torch.linalg.eigvalsh(A.double())[0].float() * torch.eye(2)  # singular as far as float32 can tell
    with pytest.warns(bcnn.NoisySpectrumWarning, match="within the rounding of A"):
        bcnn.powm(A, 0.1, precision="fast")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bcnn.powm(torch.diag(torch.tensor([1.0, 0.0])), 0.1)  # a zero that is exact


def test_powers_beyond_the_largest_number():
    with pytest.raises(bcnn.NotFiniteError, match=r"powm: expected a result within the range of torch\.float32"):
        bcnn.powm(1e30 * torch.eye(3), 1.5)
    assert bcnn.powm(1e30 * torch.eye(3).double(), 1.5).diagonal().tolist() == pytest.approx([1e45] * 3)


@pytest.mark.parametrize("p", [float("nan"), float("inf"), -float("inf")])
def test_exponents_that_are_not_finite(p):
    with pytest.raises(ValueError, match="powm: expected a finite `p`, got"):
        bcnn.powm(torch.eye(3), p)


def test_a_learned_exponent_that_has_diverged():  # 1 to the power NaN is 1: the result looks right
    for A in (torch.eye(3), bcnn.Factored(torch.eye(3)[:, :1], torch.tensor(1.0))):
        with pytest.raises(bcnn.NotFiniteError, match="powm: expected a finite `p`, got nan"):
            bcnn.powm(A, torch.tensor(float("nan")))


def test_the_exponent_is_not_rounded():
    A = torch.diag(torch.tensor([1e-30, 1.0, 1e30]))
    exact = torch.tensor([1e-30, 1.0, 1e30]).double() ** 0.1
    assert torch.equal(bcnn.powm(A, 0.1).diagonal(), exact.float())
    features = torch.rand(1, 6, 3)
    heads = [Head(normalize=["matrix_power(0.1)"], thin=thin)(features) for thin in (True, False)]
    torch.testing.assert_close(*heads, rtol=1e-6, atol=1e-6)


# --- tracing ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("two_threads")
def test_make_fx_sees_what_worker_threads_would_do():
    A = spd(3, d=96, dtype=torch.float32)
    graph = make_fx(lambda A: bcnn.sqrtm(A, check=False))(A)
    assert "linalg_eigh" in graph.code
    torch.testing.assert_close(graph(2 * A), bcnn.sqrtm(2 * A), rtol=1e-4, atol=1e-5)


EXPORTED = [("sqrtm", "eigen"), ("sqrtm", "minimax"), ("sqrtm", "newton_schulz"), ("logm", "inverse_scaling_squaring"),
            ("logm", "eigen")]  # fmt: skip


class Layer(torch.nn.Module):
    def __init__(self, function, forward):
        super().__init__()
        self.function = partial(getattr(bcnn, function), forward=forward)

    def forward(self, A):
        return self.function(A)


@pytest.mark.parametrize(("function", "forward"), EXPORTED)
def test_export(function, forward):
    layer, A = Layer(function, forward), spd(2, d=5, dtype=torch.float32)
    exported = torch.export.export(layer, (A,)).module()
    torch.testing.assert_close(exported(A / 2), layer(A / 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("function", "forward"), EXPORTED)
def test_meta_and_fake_tensors(function, forward):
    from torch._subclasses.fake_tensor import FakeTensorMode

    layer = Layer(function, forward)
    assert layer(torch.empty(2, 5, 5, device="meta")).shape == (2, 5, 5)
    with FakeTensorMode():
        assert layer(torch.empty(2, 5, 5)).shape == (2, 5, 5)


@pytest.mark.parametrize(("function", "forward"), EXPORTED)
def test_traced_and_saved(function, forward, tmp_path):
    layer, A = Layer(function, forward), spd(2, d=5, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(layer, A, check_trace=False).save(tmp_path / "layer.pt")
        again = torch.jit.load(tmp_path / "layer.pt")
    torch.testing.assert_close(again(A / 2), layer(A / 2), rtol=1e-4, atol=1e-5)


def test_thin_with_more_locations_than_channels_takes_the_plain_path():
    torch.manual_seed(0)
    X = torch.randn(1, 4, 9)
    gradients = []
    for thin, dtype in ((True, torch.float32), (False, torch.float64)):
        leaf = X.detach().to(dtype, copy=True).requires_grad_()
        Head(eps=1e-9, thin=thin, normalize=["matrix_sqrt"])(leaf)[0, 0].backward()
        gradients.append(leaf.grad)
    assert relative_error(*gradients) < 1e-4
    thin, plain = (Head(eps=1e-9, thin=thin, normalize=["matrix_sqrt"])(X) for thin in (True, False))
    assert torch.equal(thin, plain)
