"""Covariance pooling and the presets on it, against numpy's covariance and SciPy's root."""

import numpy as np
import pytest
import scipy.linalg
import torch

import bcnn
from bcnn.linalg.operand import formed
from bcnn.pooling.covariance import CovariancePool
from bcnn.pooling.triangle import full_matrix
from tests.seams.walk import SHORT, predict, train

from .helpers import locations, relu_features


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("layout", ["maps", "tokens"])
@pytest.mark.parametrize("eps", [0.0, 0.1])
def test_it_is_numpys_covariance(layout, masked, eps):
    features = relu_features(3, 5, 11)
    mask = torch.rand(3, 11, generator=torch.Generator().manual_seed(0)) > 0.3 if masked else None
    features = features.mT if layout == "tokens" else features
    found = formed(CovariancePool(eps=eps)(features, layout=layout, mask=mask))
    for A, points in zip(found, locations(features, layout, mask), strict=True):
        expected = np.cov(points.T, bias=True)
        expected += eps * np.trace(expected) * np.eye(5)
        np.testing.assert_allclose(A, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("preset", "tolerance"), [("mpn_cov", 1e-6), ("isqrt_cov", 0.02)])
def test_presets_are_scipys_root(preset, tolerance):
    features = relu_features(2, 4, 60)
    found = full_matrix(bcnn.describe(features, preset))
    for Z, points in zip(found, locations(features), strict=True):
        expected = scipy.linalg.sqrtm(np.cov(points.T, bias=True))
        assert np.linalg.norm(Z.numpy() - expected) < tolerance * np.linalg.norm(
            expected
        )  # five steps are not the root


def test_isqrt_cov_is_five_steps_of_sigma_over_its_trace():
    features = relu_features(2, 4, 20)
    found = full_matrix(bcnn.describe(features, "isqrt_cov"))
    for Z, points in zip(found, locations(features), strict=True):
        sigma = np.cov(points.T, bias=True)
        trace = np.trace(sigma)
        Y, W = sigma / trace, np.eye(4)
        for _ in range(5):
            T = (3 * np.eye(4) - W @ Y) / 2
            Y, W = Y @ T, T @ W
        np.testing.assert_allclose(Z, np.sqrt(trace) * Y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [3, 30], ids=["thin", "thick"])
def test_gradients(n):
    features = relu_features(2, 5, n).requires_grad_()
    pool = CovariancePool()
    mask = torch.rand(2, n, generator=torch.Generator().manual_seed(1)) > 0.3
    assert torch.autograd.gradcheck(lambda x: formed(pool(x, mask=mask)), (features,))
    head = bcnn.Head("mpn_cov", eps=0.1)
    assert torch.autograd.gradcheck(head, (features,))


def test_values_under_the_mask_are_never_read_and_tokens_may_be_few():
    features = relu_features(2, 5, 6)
    mask = torch.ones(2, 6, dtype=torch.bool)
    mask[:, 4:] = False
    mask[1] = False
    spoilt = features.masked_fill(~mask[:, None], float("nan"))
    found = formed(CovariancePool(eps=0)(spoilt, mask=mask))
    torch.testing.assert_close(found[:1], formed(CovariancePool(eps=0)(features[:1, :, :4])))
    assert (found[1] == 0).all()
    assert (formed(CovariancePool(eps=0)(features[..., :1])) == 0).all()


def test_shifts_do_not_matter():
    features = relu_features(2, 5, 9)
    torch.testing.assert_close(bcnn.describe(features + 3, "mpn_cov"), bcnn.describe(features, "mpn_cov"))


@pytest.mark.parametrize("preset", ["mpn_cov", "isqrt_cov"])
def test_compiles(preset, compiled):
    head, features = bcnn.Head(preset, 5), relu_features(2, 5, 20, dtype=torch.float32)
    torch.testing.assert_close(compiled(head)(features), head(features), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("more", [("--preset", "mpn_cov"), (*SHORT, "--preset", "isqrt_cov")], ids=["frozen", "tuned"])
def test_trained_saved_loaded_predicted(pictures, tmp_path, more):
    metrics = train(pictures, tmp_path / "run", "--proj-dim", "8", *more)
    assert metrics["descriptor_length"] == 36
    predict(pictures, tmp_path / "run")
