"""Fisher vectors against scikit-image and scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.mixture import GaussianMixture

from bcnn.pooling.head import Head
from bcnn.pooling.mixture import Mixture
from bcnn.pooling.normalize import l2_normalize, signed_sqrt

from .encoders import fitted, scattered
from .helpers import locations


def as_sklearn(mixture):
    """The same mixture as scikit-learn's."""
    own = GaussianMixture(len(mixture.mu), covariance_type="diag")
    own.weights_ = mixture.logits.detach().softmax(-1).numpy()
    own.means_ = mixture.mu.detach().numpy()
    own.covariances_ = (2 * mixture.log_sigma.detach()).exp().numpy()
    own.precisions_cholesky_ = own.covariances_**-0.5
    return own


def test_posteriors_are_those_of_scikit_learn():
    features = scattered(6, 4, 5, 5)
    mixture = fitted("fisher(num_words=5)", features).mixture
    points = np.concatenate(locations(features))
    q = mixture.log_posteriors(features.flatten(2).mT).exp().detach().flatten(0, 1)
    np.testing.assert_allclose(q.numpy(), as_sklearn(mixture).predict_proba(points), rtol=1e-9, atol=1e-12)


def test_vectors_are_those_of_scikit_image():
    """Its numbers for the weights of the Gaussians come first, and its part of sigma has the other sign."""
    feature = pytest.importorskip("skimage.feature")
    features = scattered(6, 4, 5, 5)
    part = fitted("fisher(num_words=3)", features)
    result = part(features).detach().numpy()  # (B, K, 2 d)
    for points, own in zip(locations(features), result, strict=True):
        theirs = feature.fisher_vector(points, as_sklearn(part.mixture))[3:]
        expected = np.concatenate([theirs[:12].reshape(3, 4), -theirs[12:].reshape(3, 4)], -1)
        np.testing.assert_allclose(own, expected, rtol=1e-9, atol=1e-12)


def test_the_improved_one_is_that_of_scikit_image():
    feature = pytest.importorskip("skimage.feature")
    features = scattered(6, 4, 5, 5)
    head = Head("bcnn", 4, pooling="fisher(num_words=3)", normalize=("signed_sqrt(0)", "l2(1e-12)")).double()
    head.pooling.load_state_dict(fitted("fisher(num_words=3)", features).state_dict())
    result = head(features).detach()
    assert result.shape == (6, 2 * 3 * 4)
    for points, own in zip(locations(features), result, strict=True):
        theirs = feature.fisher_vector(points, as_sklearn(head.pooling.mixture), improved=True, alpha=0.5)[3:]
        theirs /= np.linalg.norm(theirs)  # the length was 1 with the weights of the Gaussians
        expected = np.concatenate([theirs[:12].reshape(3, 4), -theirs[12:].reshape(3, 4)], -1).ravel()
        np.testing.assert_allclose(own.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_it_is_the_gradient_of_the_mean_log_likelihood():
    """With respect to mu and sigma, times sigma / sqrt(pi) and sigma / sqrt(2 pi)."""
    features = scattered(1, 3, 4, 4)
    mixture = fitted("fisher(num_words=2)", scattered(6, 3, 4, 4)).mixture
    mu, log_sigma = mixture.mu.detach().requires_grad_(), mixture.log_sigma.detach().requires_grad_()
    pi = mixture.logits.detach().softmax(-1)
    components = torch.distributions.Independent(torch.distributions.Normal(mu, log_sigma.exp()), 1)
    density = torch.distributions.MixtureSameFamily(torch.distributions.Categorical(pi), components)
    likelihood = density.log_prob(features[0].flatten(1).mT).mean()
    d_mu, d_log_sigma = torch.autograd.grad(likelihood, (mu, log_sigma))  # sigma dL/dsigma = dL/dlog sigma
    scale = pi.rsqrt()[:, None]
    expected = torch.cat([d_mu * log_sigma.exp() * scale, d_log_sigma * scale / 2**0.5], -1)
    w = torch.full((1, 16), 1 / 16, dtype=torch.float64)
    torch.testing.assert_close(mixture.fisher_vector(features.flatten(2).mT, w)[0].detach(), expected.detach())


def test_fitting_is_that_of_scikit_learn():
    points = scattered(40, 3, 5, 5).flatten(2).mT.flatten(0, 1).numpy()
    mixture = Mixture(4, 3).double()
    mixture.fit(points, floor=1e-4, seed=3)
    theirs = GaussianMixture(4, covariance_type="diag", reg_covar=1e-4 * points.var(0).max(), random_state=3)
    theirs.fit(points)
    np.testing.assert_allclose(mixture.mu.detach().numpy(), theirs.means_, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mixture.logits.detach().softmax(-1).numpy(), theirs.weights_, rtol=1e-5)


def test_over_the_training_images_it_is_nearly_zero():
    """The gradient of a likelihood at its maximum; what is left is what was added to the variances."""
    features = scattered(30, 3, 6, 6)
    part = fitted("fisher(num_words=5, floor=1e-9)", features)
    mean, largest = part(features).mean(0).abs().max(), part(features).abs().max()
    assert mean < 0.05 * largest


def test_features_that_never_change_have_no_effect():
    """A dead channel, and one so far away that float32 could not tell the difference."""
    features = scattered(8, 4, 5, 5, dtype=torch.float32)
    features[:, 1] = 0
    features[:, 2] += 1000
    part = fitted("fisher(num_words=3)", features)
    result = part(features)
    assert result.isfinite().all()
    exact = fitted("fisher(num_words=3)", features)
    # 1000 is rounded by 3e-5; squares of it in float32 would be by 0.06.
    torch.testing.assert_close(result.double(), exact.double()(features.double()), rtol=1e-3, atol=1e-3)
    assert l2_normalize(signed_sqrt(result.flatten(1))).isfinite().all()
