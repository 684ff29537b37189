"""Compact bilinear pooling against scikit-learn's sketch, its statistics, and its combination with matrix functions."""

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import PolynomialCountSketch

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.parts.shapes import Matrix, Spd, Vector
from bcnn.pooling import tensor_sketch as module
from bcnn.pooling.normalize import NORMALIZATIONS
from tests.seams.walk import SHORT, predict, train

from .helpers import relu_features

SKETCHES = ("tensor_sketch", "random_maclaurin")
MATRICES = ("matrix_sqrt", "matrix_log", "matrix_power(0.3)", "tangent_power", "cholesky_log")


def make(text, *sides):
    shape = Spd(sides[0]) if len(sides) == 1 else Matrix(*sides)
    return NORMALIZATIONS.make(text, inputs=(shape,))


def reference(points, places, signs, width):
    """Sums of scikit-learn's sketches of the rows of `points`, with these hashes."""
    sketch = PolynomialCountSketch(degree=len(places), gamma=1, coef0=0, n_components=width, random_state=0).fit(points)
    sketch.indexHash_, sketch.bitHash_ = np.array(places), np.array(signs)
    return sketch.transform(points).sum(0)


def hashes(part):
    return (part.places_1, part.places_2), (part.signs_1.detach(), part.signs_2.detach())


@pytest.fixture(params=[True, False], ids=["fft", "formed"])
def way(request, monkeypatch):
    """Both ways of computing it, whatever is faster."""
    monkeypatch.setattr(module, "fft_pays_off", lambda *_: request.param)


@pytest.mark.parametrize("width", [16, 33])
def test_it_is_scikit_learns(way, width):
    X = torch.randn(3, 7, 11, dtype=torch.float64)
    part = make(f"tensor_sketch({width})", 7)
    expected = [reference(x.mT.numpy(), *hashes(part), width) for x in X]
    np.testing.assert_allclose(part(Factored(X, None)), expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(part(X @ X.mT), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SKETCHES)
def test_the_ridge_counts(way, name):
    A = Factored(torch.randn(3, 7, 3, dtype=torch.float64), torch.tensor([0.1, 2.0, 5.0], dtype=torch.float64))
    part = make(f"{name}(20)", 7)
    torch.testing.assert_close(part(A), part(A.form()))


def test_random_maclaurin_is_the_loop():
    X = torch.randn(2, 5, 9, dtype=torch.float64)
    part = make("random_maclaurin(6)", 5)
    W, V = part.signs_1.double(), part.signs_2.double()
    expected = torch.zeros(2, 6, dtype=torch.float64)
    for x in X.mT.unbind(1):
        expected += (x @ W.mT) * (x @ V.mT) / 6**0.5
    for A in (Factored(X, None), Factored(X, None).form(), Factored(X.repeat(1, 1, 9) / 3, None)):
        torch.testing.assert_close(part(A), expected)


@pytest.mark.parametrize("name", SKETCHES)
def test_inner_products_are_right_in_the_mean_and_their_variance_falls_with_the_width(name):
    x, y = (torch.nn.functional.normalize(relu_features(12, seed=s), dim=0) for s in (1, 2))
    both = torch.stack([torch.outer(x, x), torch.outer(y, y)])
    exact = float(x @ y) ** 2
    errors = {}
    for width in (16, 256):
        found = []
        for seed in range(400):
            first, second = make(f"{name}({width}, seed={seed})", 12)(both)
            found.append(float(first @ second))
        # Within four standard errors, which the seeds, all given, either are or are not.
        assert abs(np.mean(found) - exact) < 4 * np.std(found) / len(found) ** 0.5
        errors[width] = np.var(found)
    assert 8 < errors[16] / errors[256] < 32  # 16 times


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("function", MATRICES)
@pytest.mark.parametrize("n", [3, 40], ids=["thin", "thick"])
def test_after_a_matrix_function_it_is_the_sketch_of_that_matrix(name, function, n):
    features = relu_features(2, 8, n)
    head = bcnn.Head("bcnn", 8, eps=0.1, normalize=(function, f"{name}(50)"))
    matrix = bcnn.Head("bcnn", 8, eps=0.1, normalize=function, triangle=False)(features).unflatten(1, (8, 8))
    assert head.out == Vector(50)
    torch.testing.assert_close(head(features), head.normalizations[1](matrix))


def test_it_is_the_sketch_of_the_rows_of_monets_factor():
    features = relu_features(2, 8, 30)
    head = bcnn.Head("bcnn", 8, eps=0, normalize=("matrix_sqrt", "tensor_sketch(50)"))
    for image, found in zip(features, head(features), strict=True):
        _, s, Vt = np.linalg.svd(image.mT.numpy() / 30**0.5, full_matrices=False)
        rows = np.sqrt(s)[:, None] * Vt
        expected = reference(rows, *hashes(head.normalizations[1]), 50)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("options", ["16", "16, learn_signs=True"])
def test_gradients(way, name, options):
    X = torch.randn(2, 5, 3, dtype=torch.float64, requires_grad=True)
    ridge = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    part = make(f"{name}({options})", 5).double()
    signs = [p.requires_grad_() for p in part.parameters()]
    assert len(signs) == (2 if "learn" in options else 0)
    assert torch.autograd.gradcheck(lambda X, ridge, *_: part(Factored(X, ridge)), (X, ridge, *signs))


@pytest.mark.parametrize("name", SKETCHES)
def test_of_two_networks(name):
    A = torch.randn(2, 5, 7, dtype=torch.float64)
    assert make(f"{name}(9)", 5, 7)(A).shape == (2, 9)
    first, second = relu_features(2, 5, 3, 3), relu_features(2, 7, 3, 3, seed=1)
    head = bcnn.Head("bcnn", [5, 7], pooling="asymmetric", normalize=("singular_power", f"{name}(9)", "l2"))
    assert head(first, second).shape == (2, 9)


def test_of_two_networks_it_is_the_fft_of_both(way):
    X, Y = torch.randn(2, 5, 4, dtype=torch.float64), torch.randn(2, 7, 4, dtype=torch.float64)
    part = make("tensor_sketch(10)", 5, 7)
    found = module.tensor_sketch_of_columns(X, Y, *hashes(part), 10)
    torch.testing.assert_close(part(X @ Y.mT), found)


@pytest.mark.parametrize("name", SKETCHES)
def test_precision_masks_tokens_and_empty_batches(way, name):
    options = {"channels": 6, "normalize": (f"{name}(40)", "signed_sqrt", "l2")}
    head = bcnn.Head("bcnn", **options)
    features = relu_features(3, 6, 4, 3)
    exact = head(features)
    for dtype, tolerance in ((torch.float32, 1e-4), (torch.bfloat16, 0.1)):
        found = head(features.to(dtype))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)
    tokens = bcnn.Head("bcnn", layout="tokens", **options)
    torch.testing.assert_close(tokens(features.flatten(2).mT), exact)
    mask = torch.zeros(3, 4, 3, dtype=torch.bool)
    mask[:, 1:] = True
    spoilt = features.masked_fill(~mask[:, None], float("nan"))
    torch.testing.assert_close(head(spoilt, mask=mask), head(features[:, :, 1:]))
    assert head(features[:0]).shape == (0, 40)
    assert tokens(features.flatten(2).mT[:, :1]).isfinite().all()


@pytest.mark.parametrize("name", SKETCHES)
def test_compiles(way, name, compiled):
    head = bcnn.Head("bcnn", 6, normalize=("matrix_sqrt", f"{name}(40)", "signed_sqrt", "l2"), eps=0.1)
    features = relu_features(2, 6, 4, 4)
    torch.testing.assert_close(compiled(head)(features), head(features))


def test_vmap_and_leading_dimensions():
    part = make("tensor_sketch(12)", 5)
    A = torch.randn(2, 3, 5, 5)
    torch.testing.assert_close(part(A)[1, 2], part(A[1, 2]))
    torch.testing.assert_close(torch.func.vmap(part)(A), part(A))


def test_stored_matrices_are_sketched():
    features = relu_features(2, 6, 4, 4)
    head = bcnn.Head("cbp", 6)
    torch.testing.assert_close(head.normalize_matrix(bcnn.bilinear_pool(features, eps=0)), head(features))


def test_the_state_is_saved_and_its_seed_decides(tmp_path):
    model = bcnn.build_model("cbp", backbone="tiny", weights=None, num_classes=3, width=64)
    again = bcnn.load(bcnn.save(model, tmp_path / "m.safetensors"))
    images = torch.rand(2, 3, 32, 32)
    assert torch.equal(model(images), again(images))
    names = {name.rpartition(".")[2] for name in again.head.state_dict()}
    assert names == {"places_1", "places_2", "signs_1", "signs_2"}
    first, same, other = (make(f"tensor_sketch(seed={seed})", 8).places_1 for seed in (3, 3, 4))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match=r"tensor_sketch: expected `width` to be a whole number >= 1, got 0"):
        make("tensor_sketch(0)", 4)
    with pytest.raises(ValueError, match=r"tensor_sketch: expected a matrix, got a vector of 8 numbers; it follows"):
        bcnn.Head("cbp", 8, pooling="average")
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric .* got a vector of 8192 numbers"):
        bcnn.Head("bcnn", 8, normalize=("tensor_sketch", "matrix_sqrt"))
    with pytest.raises(ValueError, match="tensor_sketch has to know the channels"):
        bcnn.Head("cbp")


@pytest.mark.parametrize(
    "more",
    [("--normalize", "tensor_sketch(64, learn_signs=True)"), (*SHORT, "--normalize", "random_maclaurin(64)")],
    ids=["frozen", "fine-tuned"],
)
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    rest = ("--normalize", "signed_sqrt", "--normalize", "l2", "--pooling", "bilinear(eps=0.01)")
    metrics = train(pictures, tmp_path / "run", "--normalize", "matrix_sqrt", *more, *rest)
    assert metrics["descriptor_length"] == 64
    predict(pictures, tmp_path / "run")


# --- not formed -------------------------------------------------------------------------------------------------------

UNFORMED = ("matrix_sqrt", "matrix_log", "matrix_power(0.3)", "matrix_power(0.7, learnable=True)")


@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("function", UNFORMED)
def test_the_sketch_of_a_function_needs_no_matrix(monkeypatch, name, function):
    monkeypatch.setattr(module, "fft_pays_off", lambda *_: True)
    features = relu_features(2, 9, 3)
    features[1, :, 1] = features[1, :, 0]  # rank 2
    head = bcnn.Head("bcnn", 9, eps=0.1, normalize=(function, f"{name}(50)")).double()
    sketch = head.normalizations[1]
    matrix = bcnn.Head("bcnn", 9, eps=0.1, normalize=function, triangle=False, thin=False)(features).unflatten(
        1, (9, 9)
    )
    monkeypatch.setattr("bcnn.matfun.thin_factor.Applied.form", None)  # nobody calls it
    torch.testing.assert_close(head(features), sketch(matrix))
    torch.testing.assert_close(head(features.float()).double(), sketch(matrix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("function", UNFORMED)
def test_gradients_of_the_sketch_of_a_function(monkeypatch, function):
    monkeypatch.setattr(module, "fft_pays_off", lambda *_: True)
    features = relu_features(2, 7, 3)
    features[1, :, 1] = features[1, :, 0]
    head = bcnn.Head("bcnn", 7, eps=0.1, normalize=(function, "tensor_sketch(10)")).double()
    monkeypatch.setattr("bcnn.matfun.thin_factor.Applied.form", None)
    parameters = list(head.parameters())
    assert torch.autograd.gradcheck(lambda x, *_: head(x), (features.requires_grad_(), *parameters))


def test_named_methods_are_obeyed(monkeypatch):
    monkeypatch.setattr(module, "fft_pays_off", lambda *_: True)
    features = relu_features(2, 9, 3)
    text = "matrix_sqrt(forward='newton_schulz', num_iters=2)"
    head = bcnn.Head("bcnn", 9, eps=0.1, normalize=(text, "tensor_sketch(20)"))
    matrix = bcnn.Head("bcnn", 9, eps=0.1, normalize=text, triangle=False)(features).unflatten(1, (9, 9))
    torch.testing.assert_close(head(features), head.normalizations[1](matrix))


def test_many_channels_go_through_the_fft_and_few_do_not():
    assert module.fft_pays_off(2048, 49, 8192)
    assert module.fft_pays_off(2048, 196, 8192)
    assert not module.fft_pays_off(512, 784, 8192)
    assert not module.fft_pays_off(256, 49, 8192)
