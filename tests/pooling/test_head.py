"""From features to descriptor: every preset against the naive loop, gradients through the whole of it, every edge."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import bcnn
import bcnn.pooling.contract
from bcnn.linalg.operand import Factored, formed
from bcnn.matfun.thin import is_thin
from bcnn.parts.registry import Part
from bcnn.parts.shapes import Maps, Matrix, Spd, Vector
from bcnn.pooling import POOLINGS
from bcnn.pooling.contract import Pooling
from bcnn.pooling.head import PRESETS, Head, describe, from_first_version, make_config
from bcnn.pooling.normalize import NORMALIZATIONS
from bcnn.pooling.triangle import full_matrix

from .helpers import locations, naive_descriptor, relu_features

# Smoothing far above the step of finite differences, so that a dead channel and a black image are differentiable there.
SMOOTH = {"signed_sqrt": "signed_sqrt(delta=0.1)", "l2": "l2(length=1e-1)"}


def ridge_of(preset: str) -> float:
    return getattr(Head(preset).pooling, "eps", 0.0)


def thin_option(preset: str, thin: bool | None) -> dict[str, bool | None]:
    """Heads without a matrix function have no such option."""
    return {"thin": thin} if "matrix" in PRESETS[preset].normalize[0] else {}


def goes_thin(head: Head, d: int, n: int) -> bool:
    """Whether the head computes an n x n decomposition and none of d x d."""
    sizes = Sizes()
    with sizes:
        head(torch.rand(1, d, n))
    return sizes.seen == {n}


def images() -> torch.Tensor:
    """Three images: one as usual, one with dead channels, one black."""
    features = relu_features(3, 6, 2, 2)
    features[1, 2:4] = 0
    features[2] = 0
    return features


@pytest.mark.parametrize("triangle", [True, False])
@pytest.mark.parametrize("shape", [(3, 6, 4, 4), (3, 9, 2, 2), (3, 8, 1, 1)], ids=["thick", "thin", "one location"])
@pytest.mark.parametrize("preset", PRESETS)
def test_preset_is_the_naive_loop(preset, shape, triangle):
    features = relu_features(*shape)
    sharp = ["signed_sqrt(1e-12)" if name == "signed_sqrt" else name for name in PRESETS[preset].normalize]
    result = describe(features, preset, triangle=triangle, normalize=sharp)
    default = describe(features, preset, triangle=triangle)
    assert (default * result).sum(-1).min() > 1 - 1e-5
    assert result.shape == (3, Head(preset, triangle=triangle).length(shape[1]))
    if triangle and preset != "average":
        result = full_matrix(result).flatten(1)
    expected = np.stack([naive_descriptor(points, preset, ridge_of(preset)) for points in locations(features)])
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=2e-8)


@pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])
@pytest.mark.parametrize("preset", PRESETS)
def test_gradient_through_the_whole_head(preset, thin):
    if thin and preset in ("average", "bcnn"):
        with pytest.raises(ValueError, match=r"unknown option of .*: 'thin'"):
            Head(preset, thin=True)
        return
    normalize = [SMOOTH.get(name, name) for name in PRESETS[preset].normalize]
    # An absolute ridge: a black image's own is 1e-10, too sharp for finite differences.
    ridge = {} if preset in ("average", "bcnn") else ABSOLUTE
    options = {"normalize": normalize, **thin_option(preset, thin), **ridge}
    head = Head(preset, **options)
    weight = torch.randn(5, head.length(6), dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 3, 1])

    def loss(features, weight):
        return nn.functional.cross_entropy(3 * head(features) @ weight.mT, labels)

    assert torch.autograd.gradcheck(loss, (images().requires_grad_(), weight))


ABSOLUTE = {"eps": 0.1, "eps_scale": "absolute"}


@pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])
@pytest.mark.parametrize("preset", ["improved_bcnn", "o2p"])
def test_gradient_with_the_relative_ridge(preset, thin):
    head = Head(preset, thin=thin, eps=0.05, normalize=[SMOOTH.get(n, n) for n in PRESETS[preset].normalize])
    features = images()[:2].requires_grad_()
    assert torch.autograd.gradcheck(head, (features,))


@pytest.mark.parametrize("thin", [None, False])
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_defaults_stay_finite_at_every_edge(preset, thin, dtype):
    features = relu_features(5, 48, 4, 4, dtype=torch.float32)
    features[1, 3:20] = 0
    features[2] = 0
    features[3] *= 1e6
    features[4] *= 1e-6
    features = features.to(dtype).requires_grad_()
    descriptor = Head(preset, **thin_option(preset, thin))(features)
    descriptor.square().sum().backward()
    assert descriptor.dtype == torch.float32
    assert descriptor.isfinite().all()
    assert features.grad.dtype == dtype
    assert features.grad.isfinite().all()
    assert (features.grad[2] == 0).all() or preset == "average"


@pytest.mark.parametrize("name", ["matrix_sqrt", "matrix_log", "matrix_power(0.3)"])
def test_thin_is_chosen_and_equals_thick(name):
    features = relu_features(2, 64, 5, 5)
    options = {"normalize": (name, "signed_sqrt", "l2"), "eps": 1e-2}
    head = Head(**options)
    assert goes_thin(head, 64, 25)
    torch.testing.assert_close(head(features), Head(thin=False, **options)(features))
    assert not goes_thin(head, 16, 25)
    assert not goes_thin(Head(thin=False, **options), 64, 25)


@pytest.mark.parametrize(
    "options",
    [
        {"normalize": "matrix_sqrt(forward='newton_schulz')"},
        {"normalize": "matrix_sqrt(backward='lyapunov')"},
        {"normalize": ("l2", "matrix_sqrt")},
        {"eps": 0.0},
    ],
)
def test_a_named_method_or_no_ridge_is_never_thin(options):
    assert not goes_thin(Head(**options), 64, 5)
    with pytest.raises(ValueError, match="expected thin=True with"):
        Head(thin=True, **options)


def test_precision_may_be_asked_for_on_the_thin_path():
    assert goes_thin(Head(normalize="matrix_sqrt(precision='high')"), 64, 5)


def test_a_matrix_that_is_not_formed_goes_into_a_matrix_function():
    X = relu_features(2, 16, 3)
    for ridge in (torch.tensor([0.1, 0.2], dtype=torch.float64), None):
        A = Factored(X, ridge)
        assert is_thin(A, None) == (ridge is not None)
        for thin in (None, False, True):
            torch.testing.assert_close(bcnn.sqrtm(A, thin=thin), bcnn.sqrtm(A.form()))
            torch.testing.assert_close(bcnn.powm(A, 0.3, thin=thin), bcnn.powm(A.form(), 0.3))
    Z, info = bcnn.sqrtm(Factored(X, torch.ones(2, dtype=torch.float64)), return_info=True)
    assert info.residual.max() < 1e-12
    torch.testing.assert_close(Z @ Z, Factored(X, torch.ones(2, dtype=torch.float64)).form())


def test_any_order_of_normalizations():
    features = relu_features(2, 6, 4, 4)
    A = bcnn.bilinear_pool(features, eps=1e-2)
    expected = bcnn.sqrtm(A / A.flatten(1).norm(dim=1)[:, None, None])
    result = Head(normalize=("l2", "matrix_sqrt"), eps=1e-2, triangle=False)(features)
    torch.testing.assert_close(result, expected.flatten(1), rtol=1e-9, atol=1e-9)
    twice = Head(normalize=("matrix_power(0.5)", "matrix_power(0.5)"), eps=1e-2, triangle=False)(features)
    torch.testing.assert_close(twice, bcnn.powm(A, 0.25).flatten(1), rtol=1e-9, atol=1e-9)
    with pytest.raises(bcnn.NotPositiveDefiniteError):  # entrywise roots need not be definite
        describe(relu_features(2, 64, 5, 6), normalize=("signed_sqrt", "matrix_sqrt"))
    back = describe(features, normalize=("l2", "signed_sqrt"), eps=1e-2)
    full = describe(features, normalize=("l2", "signed_sqrt"), eps=1e-2, triangle=False)
    torch.testing.assert_close(full_matrix(back).flatten(1), full)


def test_a_learned_exponent_is_a_parameter_on_both_paths():
    features = relu_features(2, 16, 2, 2)
    gradients = []
    for thin in (True, False):
        head = Head(normalize=("matrix_power(0.4, learnable=True)", "l2"), thin=thin, eps=0.1).double()
        assert [name for name, _ in head.named_parameters()] == ["normalizations.0.p"]
        weight = torch.arange(head.length(16), dtype=torch.float64).sin()
        (head(features) @ weight).sum().backward()
        gradients.append(head.normalizations[0].p.grad)
    torch.testing.assert_close(*gradients)


def test_layouts_agree():
    maps = relu_features(2, 6, 3, 4)
    for preset in PRESETS:
        expected = describe(maps, preset)
        torch.testing.assert_close(describe(maps.flatten(2), preset), expected)
        torch.testing.assert_close(describe(maps.flatten(2).mT, preset, layout="tokens"), expected)


def test_masks_drop_locations():
    features = relu_features(2, 6, 3, 4)
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    mask[:, :2, 1:] = True
    for preset in PRESETS:
        torch.testing.assert_close(
            describe(features, preset, mask=mask), describe(features[:, :, :2, 1:], preset), rtol=1e-6, atol=1e-9
        )


def test_asymmetric_head_takes_two_features():
    head = Head(pooling="asymmetric", normalize=("signed_sqrt", "l2"))
    first, second = relu_features(2, 5, 4, 4), relu_features(2, 3, 8, 8, seed=1)
    assert head(first, second).shape == (2, head.length(5, 3))
    expected = bcnn.l2_normalize(bcnn.signed_sqrt(bcnn.asymmetric_pool(first, second).flatten(1)))
    torch.testing.assert_close(head(first, second), expected)
    with pytest.raises(ValueError, match="expected 2 features for 'asymmetric' pooling, got 1"):
        head(first)
    with pytest.raises(ValueError, match="expected 1 features for 'bilinear' pooling, got 2"):
        Head("bcnn")(first, second)
    with pytest.raises(ValueError, match="asymmetric: expected the features of 2 networks, got those of 1"):
        Head("bcnn", 5, pooling="asymmetric")
    torch.testing.assert_close(describe([first, second], pooling="asymmetric", normalize=()).flatten(1),
                               bcnn.asymmetric_pool(first, second).flatten(1))  # fmt: skip


class ShiftedPool(Pooling):
    """Bilinear pooling with a ridge of its own.

    Args:
        shift: what is added to the diagonal.
    """

    def __init__(self, shift: float = 0.0):
        super().__init__()
        self.shift = shift

    def shape(self, *inputs):
        return Spd(inputs[0].channels)

    def forward(self, features, *, layout="maps", mask=None):
        A = bcnn.bilinear_pool(features, eps=0.0, layout=layout, mask=mask)
        return A + self.shift * torch.eye(features.shape[1])


def test_a_new_pooling_is_one_registration(monkeypatch):
    monkeypatch.setitem(POOLINGS, "shifted", Part(ShiftedPool, "with a ridge of its own"))
    features = relu_features(2, 6, 2, 2)
    expected = describe(features, eps=0.3, eps_scale="absolute", thin=False)
    torch.testing.assert_close(describe(features, pooling="shifted(shift=0.3)"), expected)
    torch.testing.assert_close(describe(features, pooling="shifted", shift=0.3), expected)
    assert POOLINGS["shifted"].options["shift"].help == "what is added to the diagonal."
    with pytest.raises(ValueError, match="expected thin=True with"):
        Head(pooling="shifted", shift=0.3, thin=True)
    with pytest.raises(ValueError, match=r"unknown option of shifted, .*: 'eps_scale'"):
        Head(pooling="shifted", eps_scale="absolute")


def test_shapes_are_said_when_a_head_is_built():
    assert Head("improved_bcnn", 8).out == Vector(36)
    assert Head("improved_bcnn", 8, triangle=False).out == Vector(64)
    assert Head("average", 8).out == Vector(8)
    assert Head("bcnn").out is None
    assert Head("bcnn").shape(Maps(3)) == Vector(6)
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric positive .* got a vector of 8 numbers"):
        Head("improved_bcnn", 8, pooling="average")


def test_autocast_and_empty_batches():
    features = relu_features(2, 32, 3, 3, dtype=torch.float32)
    for preset in PRESETS:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            inside = describe(features, preset)
        assert torch.equal(inside, describe(features, preset))
        head = Head(preset)
        assert head(features[:0]).shape == (0, head.length(32))


def test_training_through_autocast_matches_training_without():
    features = relu_features(2, 32, 3, 3, dtype=torch.float32)
    gradients = []
    for enabled in (True, False):
        leaf = features.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            describe(leaf)[:, 5].sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("preset", PRESETS)
def test_compiles_forward_and_backward(preset):
    features = relu_features(2, 8, 2, 2, dtype=torch.float32)
    head = Head(preset)  # without the compiler this would be thin
    results = []
    for call in (torch.compile(head, backend="aot_eager"), Head(preset, **thin_option(preset, False))):
        leaf = features.clone().requires_grad_()
        descriptors = call(leaf)
        descriptors[:, 1].sum().backward()
        results.append((descriptors, leaf.grad))
    torch.testing.assert_close(results[0], results[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("preset", PRESETS)
def test_gradient_of_float32_heads_on_features_with_dead_channels(preset):
    # A signed square root after a root blows up the rounding where zeros should be: the whole head has to be exact.
    features = relu_features(2, 64, 10, 10, dtype=torch.float32) * torch.logspace(0, -1.5, 64)[:, None, None]
    features[:, ::5] = 0
    gradients = []
    for dtype in (torch.float32, torch.float64):
        leaf = features.detach().to(dtype, copy=True).requires_grad_()
        descriptors = Head(preset, **thin_option(preset, False))(leaf)
        weight = torch.arange(descriptors.shape[1], dtype=dtype).sin()
        (descriptors @ weight).sum().backward()
        gradients.append(leaf.grad.double())
    assert (gradients[0] - gradients[1]).norm() < 3e-4 * gradients[1].norm()
    live = features > 0
    assert ((gradients[0] - gradients[1]) * live).norm() < 3e-4 * (gradients[1] * live).norm()


def test_the_scale_of_the_features_does_not_matter():
    features = relu_features(2, 16, 3, 3)
    for preset in ("average", "bcnn", "improved_bcnn"):
        expected = describe(features, preset)
        for scale in (1e-3, 1e3):
            torch.testing.assert_close(describe(scale * features, preset), expected, rtol=1e-5, atol=1e-7)


def test_stored_matrices_are_normalized_in_float32():
    features = relu_features(2, 8, 4, 4)
    A = bcnn.bilinear_pool(features, eps=1e-2)
    A[0, 3] = A[0, :, 3] = 0  # a dead channel
    for preset in ("bcnn", "improved_bcnn"):
        head = Head(preset, eps=1e-2)
        exact = head.normalize_matrix(A)
        for dtype, tolerance in ((torch.float16, 2e-2), (torch.bfloat16, 1e-1)):
            half = head.normalize_matrix(A.to(dtype))
            assert half.dtype == torch.float32
            torch.testing.assert_close(half.double(), exact, rtol=0, atol=tolerance)
    torch.testing.assert_close(
        Head(eps=1e-2).normalize_matrix(bcnn.bilinear_pool(features, eps=1e-2)), describe(features, eps=1e-2)
    )
    with pytest.raises(ValueError, match=r"pooled features of shape \(B, d, d\), got \(2, 36\)"):
        head.normalize_matrix(torch.zeros(2, 36))
    with pytest.raises(ValueError, match=r"shape \(B, d\), got \(2, 3, 3\)"):
        Head("average").normalize_matrix(torch.zeros(2, 3, 3))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("thin", [None, False])
def test_overflow_is_an_error_and_not_a_nan(preset, thin):
    features = relu_features(2, 64, 3, 3, dtype=torch.float32) * 1e20
    if preset == "average":
        assert describe(features, preset).isfinite().all()
    else:
        with pytest.raises(ValueError, match="finite `features` and sums"):
            describe(features, preset, **thin_option(preset, thin))


def test_a_head_from_its_configuration():
    head = Head("o2p", eps=0.3, layout="tokens")
    assert Head(head.config).config == head.config
    assert Head(head.config, eps=0.1).config.pooling == "bilinear(eps=0.1)"


def test_vmap_over_images():
    features = relu_features(3, 8, 2, 2)
    for preset in PRESETS:
        head = Head(preset)
        result = torch.func.vmap(lambda x, head=head: head(x[None])[0])(features)
        torch.testing.assert_close(result, head(features))


def test_config_is_plain_data():
    config = make_config("o2p", eps=0.5, normalize="l2")
    assert json.loads(json.dumps(asdict(config)))["normalize"] == ["l2"]
    assert make_config("bcnn", eps=None).pooling == "bilinear(eps=0.0)"  # None leaves the preset's
    assert make_config("o2p", pooling="bilinear(eps=1, eps_scale=absolute)").pooling == (
        "bilinear(eps=1.0, eps_scale='absolute')"
    )
    assert make_config("improved_bcnn", normalize="matrix_sqrt(forward='auto')").normalize == ("matrix_sqrt",)
    assert "eps=0.5" in repr(Head("o2p", eps=0.5))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "improved"}, "unknown preset 'improved'; did you mean 'improved_bcnn'"),
        ({"pooling": "max"}, "unknown pooling 'max'"),
        ({"normalise": "l2"}, "unknown option of .*: 'normalise'; did you mean 'normalize'"),
        ({"preset": "average", "normalize": "matrix_sqrt"}, "matrix functions follow bilinear pooling"),
        ({"layout": "nchw"}, "unknown layout 'nchw'"),
        ({"eps": -1.0}, "expected `eps`"),
        ({"thin": "off"}, "expected `thin` to be True, False or None, got 'off'"),
        ({"triangle": "no"}, "expected `triangle` to be True or False, got 'no'"),
        ({"normalize": 3}, "expected `normalize` to be text or a list of texts, got 3"),
        ({"normalize": [bcnn.SignedSqrt()]}, "expected `normalize` to be text or a list of texts"),
        ({"preset": "average", "eps": 1.0}, "unknown option of average, l2: 'eps'"),
    ],
)
def test_bad_options_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Head(**arguments)


def test_what_a_head_knows_of_the_spectrum_saves_products_and_error():
    """On an accelerator; run here on the CPU with the methods that it would take."""
    from bcnn.matfun.plan import methods_for

    features = relu_features(2, 512, 28, 28, dtype=torch.float32)
    pooled = Head("improved_bcnn").pool(features)
    A, lower = pooled.form(), pooled.least
    spectrum = torch.linalg.eigvalsh(A.double())
    assert lower <= (spectrum.amin(-1) / torch.linalg.matrix_norm(A.double())).min()
    known = methods_for("sqrt", "cuda", 512, lower)
    assert set(known) == {"lower", "solver_lower"}
    assert methods_for("sqrt", "cpu", 512, lower) == {}  # float64 there
    assert methods_for("sqrt", "cuda", 8, lower) == {}  # eigh is as fast there

    G = torch.randn(A.shape, dtype=torch.float64)
    G = G + G.mT
    exact = A.double().requires_grad_()
    Z = bcnn.sqrtm(exact)
    (X,) = torch.autograd.grad(Z, exact, G)
    counts, errors = [], []
    for options in ({}, known):
        leaf = A.clone().requires_grad_()
        with Products() as products:
            root = bcnn.sqrtm(leaf, forward="minimax", solver="iterative", check=False, **options)
            (gradient,) = torch.autograd.grad(root, leaf, G.float())
        counts.append(products.count)
        errors.append([float((a - b).norm() / b.norm()) for a, b in ((root, Z), (gradient, X))])
    assert counts[1] < 0.75 * counts[0]
    assert errors[1][0] < min(errors[0][0], 1e-5)
    assert errors[1][1] < min(errors[0][1], 1e-4)


def test_configurations_of_the_first_version_are_translated():
    old = {"pooling": "bilinear", "normalize": ["matrix_log", "l2"], "eps": 0.003, "eps_scale": "trace",
           "layout": "maps", "triangle": True, "thin": None}  # fmt: skip
    assert from_first_version(old) == make_config("o2p")
    old |= {"pooling": "average", "normalize": ["l2"], "eps": 0.001}
    assert from_first_version(old) == make_config("average")
    old |= {"pooling": "bilinear", "normalize": ["matrix_sqrt", "l2"], "thin": False}
    assert from_first_version(old).normalize == ("matrix_sqrt(thin=False)", "l2")


class Sizes(TorchDispatchMode):
    """Which matrices are decomposed."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is torch.ops.aten._linalg_eigh.default:
            self.seen.add(args[0].shape[-1])
        return op(*args, **(kwargs or {}))


class Products(TorchDispatchMode):
    """Counts products, as whole ones."""

    count = 0.0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op in (torch.ops.aten.bmm.default, torch.ops.aten.mm.default):
            self.count += args[0].shape[-2] * args[0].shape[-1] * args[1].shape[-1] / 512**3
        return op(*args, **(kwargs or {}))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("side", [2, 7], ids=["thin", "full"])
def test_the_compiler_takes_a_head_whole(preset, side):
    head, features = Head(preset), relu_features(2, 8, side, side, dtype=torch.float32)
    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), head(features), rtol=1e-3, atol=1e-4)
    exported = torch.export.export(head, (features,), strict=True)
    torch.testing.assert_close(exported.module()(features), head(features), rtol=1e-3, atol=1e-4)


class FirstColumns(bcnn.pooling.contract.Normalization):
    takes = "spd"

    def shape(self, given):
        return Matrix(given.dim, 2)

    def forward(self, A):
        return formed(A)[..., :2]


def test_a_part_that_makes_something_else_of_a_matrix(monkeypatch):
    monkeypatch.setitem(NORMALIZATIONS, "first_columns", Part(FirstColumns, "two columns"))
    features = relu_features(2, 6, 4, 4)
    head = Head("bcnn", 6, normalize=["first_columns"])
    assert head.out == Vector(12)
    torch.testing.assert_close(head(features), bcnn.bilinear_pool(features, eps=0)[..., :2].flatten(1))


@pytest.mark.parametrize("channels", [0, 512.5, "512", [8, "8"]])
def test_wrong_channels_are_named(channels):
    with pytest.raises(ValueError, match="expected `channels` to be a whole number >= 1, or a list of them"):
        Head("bcnn", channels)


def test_the_thin_path_checks_as_the_other_does():
    X = relu_features(2, 16, 3)
    A = Factored(X, torch.tensor([1.0, -1.0], dtype=torch.float64))
    with pytest.raises(bcnn.NotPositiveDefiniteError, match="expected a ridge > 0"):
        bcnn.sqrtm(A)
    good = Factored(X, torch.ones(2, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected a finite `p`"):
        bcnn.powm(good, float("nan"))
    with pytest.raises(ValueError, match="to broadcast with the leading dimensions"):
        bcnn.powm(good, torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="expected `thin` to be True, False or None, got 'yes'"):
        bcnn.sqrtm(good, thin="yes")


def test_thin_is_for_the_first_function():
    head = Head(normalize=["matrix_sqrt", "matrix_power(0.9)", "l2"], thin=True)
    assert head.config.normalize == ("matrix_sqrt(thin=True)", "matrix_power(p=0.9)", "l2")
