"""Low-rank bilinear pooling: against explicit W and A, truncated decompositions, and through all commands."""

import numpy as np
import pytest
import torch

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.matfun.factored import factored_sqrt
from bcnn.parts.shapes import Spd, Vector
from bcnn.runs.config import RunConfig
from bcnn.runs.train import train as run
from bcnn.scorers import SCORERS
from bcnn.scorers.lrbp import leading_directions, low_rank_scores
from tests.descriptors.images import picture_folder
from tests.seams.walk import SHORT, predict, train


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def scorer(d=6, classes=3, text="lrbp(dim=4, rank=4)", dtype=torch.float64):
    torch.manual_seed(0)
    return SCORERS.make(text, inputs=(Spd(d),), num_classes=classes).to(dtype)


def factored(d=6, n=5, ridge=0.3, batch=2):
    return Factored(random(batch, d, n, seed=1), None if ridge is None else torch.full((batch,), ridge).double())


@pytest.mark.parametrize("ridge", [None, 0.3])
def test_scores_are_those_of_the_formula_and_of_explicit_matrices(ridge):
    own, given = scorer(), factored(ridge=ridge)
    own.bias.data = random(3, seed=5)
    got = own(given).detach()
    P, U, A = own.P.detach(), own.U.detach(), given.form()
    for k in range(3):
        plus, minus = U[k, :, :2], U[k, :, 2:]
        W = P @ (plus @ plus.T - minus @ minus.T) @ P.T
        torch.testing.assert_close(got[:, k], (W * A).sum((-2, -1)) + own.bias[k].detach(), rtol=1e-12, atol=1e-12)
        if ridge is None:  # the formula of the paper, by the features alone
            norms = [(half.T @ P.T @ given.X).square().sum((-2, -1)) for half in (plus, minus)]
            torch.testing.assert_close(got[:, k], norms[0] - norms[1] + own.bias[k].detach(), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own(A), own(given), rtol=1e-12, atol=1e-12)


def test_gradients():
    own, given = scorer(), factored()
    values = [given.X, given.ridge, own.P.detach(), own.U.detach()]
    for value in values:
        value.requires_grad_()

    def scores(X, ridge, P, U):
        return low_rank_scores(Factored(X, ridge), P, U, own.signs)

    assert torch.autograd.gradcheck(scores, values)
    assert torch.autograd.gradgradcheck(scores, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions(dtype):
    own, given = scorer(), factored()
    expected = own(given)
    got = own.to(dtype)(Factored(given.X.to(dtype), given.ridge.to(dtype)))
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), expected, rtol=0, atol=20 * torch.finfo(dtype).eps * float(given.X.norm()))


def test_directions_are_the_truncated_decomposition():
    W = random(3, 7, 7, seed=2)
    W = W + W.mT
    F = leading_directions(W, 4)
    for k in range(3):
        values, vectors = np.linalg.eigh(W[k].numpy())
        keep = [0, 1, 5, 6]  # two of either sign
        assert values[1] < 0 < values[5]
        best = (vectors[:, keep] * values[keep]) @ vectors[:, keep].T
        got = (F[k, :, :2] @ F[k, :, :2].T - F[k, :, 2:] @ F[k, :, 2:].T).numpy()
        np.testing.assert_allclose(got, best, atol=1e-12)
    definite = W @ W.mT
    assert torch.equal(leading_directions(definite, 4)[..., 2:], torch.zeros(3, 7, 2, dtype=torch.float64))


@pytest.mark.parametrize("projection", ["pca", "codecomposition", "random"])
@pytest.mark.parametrize("triangle", [True, False])
def test_of_full_rank_it_is_the_linear_classifier(projection, triangle):
    d = 5
    own = scorer(d, text=f"lrbp(dim=9, rank=10, projection={projection})")
    W, A = (M + M.mT for M in (random(3, d, d, seed=2), random(4, d, d, seed=3)))
    A = A @ A.mT
    as_rows = bcnn.upper_triangle if triangle else (lambda M: M.flatten(1))
    own.look_at([as_rows(A[:1]), as_rows(A[1:])])
    own.start_from(as_rows(W), torch.arange(3.0))
    expected = torch.einsum("kde,bde->bk", W, A) + torch.arange(3.0)
    torch.testing.assert_close(own(A), expected, rtol=1e-5, atol=1e-4)


def test_pca_and_codecomposition_are_the_best_projections():
    d, m = 8, 3
    W = random(4, d, d, seed=2)
    W = W + W.mT
    mean = random(d, d, seed=4)
    mean = mean @ mean.T
    own = scorer(d, 4, f"lrbp(dim={m}, rank=2)")
    own.look_at([bcnn.upper_triangle(mean[None])])
    values, vectors = np.linalg.eigh(mean.numpy())
    np.testing.assert_allclose(np.abs(own.P.detach().numpy().T @ vectors[:, ::-1][:, :m]), np.eye(m), atol=1e-6)
    assert float(own.scale) == pytest.approx(1 / values.sum(), rel=1e-6)

    own = scorer(d, 4, f"lrbp(dim={m}, rank=2, projection=codecomposition)")
    own.start_from(bcnn.upper_triangle(W), torch.zeros(4))
    stacked = leading_directions(W, 2).movedim(0, 1).flatten(1).numpy()
    P = own.P.detach().numpy()
    lost = np.linalg.norm(stacked - P @ P.T @ stacked)
    tail = np.linalg.svd(stacked, compute_uv=False)[m:]
    assert lost == pytest.approx(np.sqrt((tail**2).sum()), rel=1e-5)
    np.testing.assert_allclose(own.U.detach().numpy(), np.einsum("dm,kdr->kmr", P, leading_directions(W, 2)), atol=1e-5)


def test_refusals():
    with pytest.raises(ValueError, match=r"lrbp: expected `rank` to be an even number >= 2, got 3"):
        scorer(text="lrbp(rank=3)")
    with pytest.raises(ValueError, match=r"lrbp: expected `dim` to be a whole number >= 1, got 0"):
        scorer(text="lrbp(dim=0)")
    with pytest.raises(ValueError, match="lrbp: unknown projection 'pcs'; did you mean 'pca'"):
        scorer(text="lrbp(projection=pcs)")
    with pytest.raises(ValueError, match=r"lrbp: expected a symmetric .* got a vector of 7 numbers"):
        SCORERS.make("lrbp", inputs=(Vector(7),), num_classes=3)
    with pytest.raises(ValueError, match=r"lrbp: expected 6 x 6 matrices or their triangles, got 20 numbers"):
        scorer().start_from(torch.zeros(3, 20), torch.zeros(3))
    with pytest.raises(ValueError, match=r"lrbp: expected training descriptors"):
        scorer().look_at([])


# --- after normalizations ---------------------------------------------------------------------------------------------


def test_the_root_of_a_matrix_that_is_not_formed():
    import scipy.linalg

    given = factored(d=7, n=4)
    root = factored_sqrt(given)
    for own, A in zip(root.form(), given.form(), strict=True):
        np.testing.assert_allclose(own, scipy.linalg.sqrtm(A.numpy()).real, atol=1e-12)
    values = [given.X.requires_grad_(), given.ridge.requires_grad_()]
    assert torch.autograd.gradcheck(lambda X, ridge: factored_sqrt(Factored(X, ridge)).form(), values)
    black = factored_sqrt(Factored(torch.zeros(1, 7, 4), torch.tensor([0.25])))
    torch.testing.assert_close(black.form(), 0.5 * torch.eye(7)[None])
    with pytest.raises(ValueError, match="factored_sqrt: expected a ridge > 0, got none"):
        factored_sqrt(Factored(given.X, None))


@pytest.mark.parametrize(
    ("normalize", "forms"),
    [((), False), (("l2",), False), (("matrix_sqrt", "l2"), False), (("matrix_sqrt", "signed_sqrt", "l2"), True),
     (("matrix_log",), True), (("matrix_sqrt(forward=newton_schulz)",), True)],
)  # fmt: skip
@pytest.mark.parametrize("size", [32, 64])  # 16 locations and 64, of 32 channels
def test_with_normalizations_it_scores_what_descriptors_say(normalize, forms, size, monkeypatch):
    torch.manual_seed(0)
    model = bcnn.build_model(
        "improved_bcnn", backbone="tiny", weights=None, num_classes=3, scorer="lrbp(dim=8)", normalize=normalize
    )
    images = torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    expected = model.score(model.describe(images))
    if not forms and size == 32:
        monkeypatch.setattr(Factored, "form", None)  # nobody calls it
    torch.testing.assert_close(model(images), expected, rtol=1e-4, atol=1e-5)


def test_crops_are_refused_in_words(monkeypatch):
    from bcnn.fronts import FRONTS
    from bcnn.fronts.contract import Front
    from bcnn.parts.registry import Part

    class Twice(Front):
        num_crops = 2

    monkeypatch.setitem(FRONTS, "twice", Part(Twice, "twice the image"))
    with pytest.raises(ValueError, match=r"expected no crops before the scorer 'lrbp'.*leave the front out"):
        bcnn.build_model("bcnn", backbone="tiny", weights=None, num_classes=3, scorer="lrbp", front="twice")


@pytest.mark.parametrize("more", [(), SHORT], ids=["frozen", "fine-tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    options = ("--scorer", "lrbp(dim=8, rank=4)", "--pooling", "bilinear(eps=0.1)")
    metrics = train(pictures, tmp_path / "run", *options, "--normalize", "matrix_sqrt", "--normalize", "l2", *more)
    model = bcnn.load(tmp_path / "run" / "model.safetensors")
    assert model.scorer.U.shape == (3, 8, 4)
    assert 0 < float(model.scorer.scale) < 1  # it has looked at descriptors
    assert metrics["descriptor_length"] == 528
    predict(pictures, tmp_path / "run")


def test_a_sketch_before_it_is_refused_before_images_are_described(tmp_path):
    picture_folder(tmp_path / "pictures", classes=2, train=2, test=1)
    config = RunConfig(
        spec=f"folder:{tmp_path / 'pictures'}",
        preset=("cbp_sqrt",),
        backbone="tiny",
        weights=None,
        size=32,
        scorer="lrbp",
    )
    with pytest.raises(ValueError, match=r"lrbp: expected .* got a vector of 8192 numbers"):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4, 1e12])
def test_the_length_by_the_factor_is_that_of_the_matrix_for_features_of_any_size(scale):
    features = scale * random(2, 12, 3, 2, seed=3).abs().float()
    head = bcnn.Head("bcnn", 12, normalize=["l2"])
    matrix = head.matrix(features)
    assert isinstance(matrix, Factored)
    expected = bcnn.l2_normalize(head.pool(features.double()).form().flatten(1))
    torch.testing.assert_close(matrix.form().flatten(1), expected.float(), rtol=1e-5, atol=1e-7)


def test_autocast_does_not_touch_the_matrix():
    features, head = random(2, 12, 3, 2, seed=3).float(), bcnn.Head("bcnn", 12, normalize=["l2"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        matrix = head.matrix(features).form()
    torch.testing.assert_close(matrix, head.matrix(features).form())
