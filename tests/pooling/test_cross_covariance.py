"""Cross-covariance of narrow projections, head by head, for maps and for sequences of tokens of any length."""

import numpy as np
import pytest
import torch

import bcnn
from bcnn.parts.shapes import Maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.cross_covariance import _largest
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, relu_features


def make(text, channels=6):
    return POOLINGS.make(text, inputs=(Maps(channels),)).double()


def reference(part, points):
    x = points - points.mean(0) if part.centre else points
    found = [points.mean(0)] if part.mean else []
    for L, R in zip(part.left.detach().numpy(), part.right.detach().numpy(), strict=True):
        C = (x @ L.T).T @ (x @ R.T) / len(points)
        if part.root == "all":
            U, s, Vt = np.linalg.svd(C)
            C = U @ np.diag(np.sqrt(s)) @ Vt
        if part.root == "largest":  # SoT's own formula
            u = C @ part.vector.detach().numpy()
            u /= np.linalg.norm(u)
            v = C.T @ u
            v /= np.linalg.norm(v)
            s = u @ C @ v
            C = np.sqrt(s) * np.outer(u, v) + (C - s * np.outer(u, v)) / np.sqrt(s)
        found.append(C.ravel())
    return np.concatenate(found)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", ["maps", "tokens"])
@pytest.mark.parametrize(
    "text", ["(3)", "(3, heads=2, root=all)", "(2, heads=3, root=largest, mean=False)", "(3, centre=False)"]
)
def test_it_is_the_formula(text, layout, masked):
    part = make(f"cross_covariance{text}")
    features = relu_features(3, 6, 20)
    mask = torch.rand(3, 20, generator=torch.Generator().manual_seed(0)) > 0.3 if masked else None
    features = features.mT if layout == "tokens" else features
    found = part(features, layout=layout, mask=mask).detach().numpy()
    expected = np.stack([reference(part, points) for points in locations(features, layout, mask)])
    assert found.shape == (3, part.shape(Maps(6)).length)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_with_all_of_the_channels_it_is_the_covariance():
    part = make("cross_covariance(6, mean=False)")
    with torch.no_grad():
        part.left.copy_(torch.eye(6))
        part.right.copy_(torch.eye(6))
    features = relu_features(2, 6, 20)
    expected = bcnn.describe(features, "mpn_cov", normalize=(), triangle=False)
    torch.testing.assert_close(part(features), expected)


def test_sequences_of_different_length_in_one_batch():
    part = make("cross_covariance(3, root=all)")
    tokens = relu_features(2, 9, 6)
    mask = torch.tensor([[True] * 9, [True] * 4 + [False] * 5])
    spoilt = tokens.masked_fill(~mask[..., None], float("nan"))
    found = part(spoilt, layout="tokens", mask=mask)
    torch.testing.assert_close(found[:1], part(tokens[:1], layout="tokens"))
    torch.testing.assert_close(found[1:], part(tokens[1:, :4], layout="tokens"))
    assert part(tokens[:, :1], layout="tokens").isfinite().all()  # one token has no covariance


def test_the_estimate_of_the_largest_singular_value_is_one_from_below():
    C = torch.randn(5, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    largest = torch.linalg.svdvals(C)[:, :1, None]
    assert (_largest(C, torch.ones(4, dtype=torch.float64)) <= largest * (1 + 1e-12)).all()
    vector = torch.linalg.svd(C[0])[2][0]
    torch.testing.assert_close(_largest(C[:1], vector), largest[:1])


def test_pca_finds_the_directions_of_largest_variance():
    part = make("cross_covariance(2, heads=2, start=pca)", 7)
    features = relu_features(5, 7, 30) * torch.linspace(1, 5, 7)[:, None]
    with pytest.raises(ValueError, match="CrossCovariancePool: expected to be fitted on training images first"):
        part(features)
    part.fit(lambda: [(features[:3],), (features[3:],)])
    total = sum(np.cov(points.T, bias=True) for points in locations(features))
    _, vectors = np.linalg.eigh(total)
    for i, row in enumerate(part.left.detach().flatten(0, 1).numpy()):
        assert abs(abs(row @ vectors[:, -1 - i]) - 1) < 1e-8
    assert torch.equal(part.left, part.right)
    with pytest.raises(ValueError, match="at most 7 directions, one per channel, got 2 heads of 4"):
        make("cross_covariance(4, heads=2, start=pca)", 7)


@pytest.mark.parametrize("root", ["none", "largest", "all"])
def test_gradients(root):
    part = make(f"cross_covariance(2, heads=2, root={root})", 4)
    features = relu_features(2, 4, 9).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: part(x), (features, *part.parameters()))


@pytest.mark.parametrize("root", ["none", "largest", "all"])
def test_precision_and_edges(root):
    part = make(f"cross_covariance(3, root={root})")
    features = relu_features(3, 6, 4, 4)
    features[2] = 0
    exact = part(features)
    for dtype, tolerance in ((torch.float32, 1e-3), (torch.bfloat16, 0.1)):
        leaf = features.to(dtype).requires_grad_()
        found = part(leaf)
        found.sum().backward()
        assert found.dtype == torch.float32
        assert leaf.grad.isfinite().all()
        torch.testing.assert_close(found.double(), exact, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("root", ["none", "largest", "all"])
def test_compiles(root, compiled):
    head = bcnn.Head("average", 5, pooling=f"cross_covariance(3, root={root})")
    features = relu_features(2, 5, 20, dtype=torch.float32)
    torch.testing.assert_close(compiled(head)(features), head(features), rtol=1e-4, atol=1e-5)


def test_wrong_options_are_named():
    with pytest.raises(ValueError, match=r"cross_covariance: unknown root 'al'; did you mean 'all'\?"):
        make("cross_covariance(root=al)")
    with pytest.raises(ValueError, match=r"matrix_sqrt: expected a symmetric .* got a vector of"):
        bcnn.Head("improved_bcnn", 4, pooling="cross_covariance")


@pytest.mark.parametrize("more", [("(4, heads=2, start=pca)",), ("(4, root=largest)", *SHORT)], ids=["frozen", "tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--pooling", f"cross_covariance{more[0]}", *more[1:])
    assert metrics["descriptor_length"] == 32 + 16 * (2 if "heads" in more[0] else 1)
    predict(pictures, tmp_path / "run")
