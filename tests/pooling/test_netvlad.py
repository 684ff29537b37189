"""NetVLAD against a loop, and hard VLAD as its limit."""

import numpy as np
import torch
from sklearn.cluster import KMeans

from bcnn.pooling.netvlad import choose_alpha

from .encoders import fitted, scattered
from .helpers import locations


def unit(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def by_hand(points, part):
    """Location by location, as the paper writes it, with what has been learned."""
    w, b, c = (value.detach().double().numpy() for value in (part.weight, part.bias, part.centres))
    V = np.zeros_like(c)
    for x in unit(points):
        a = np.exp(w @ x + b - (w @ x + b).max())
        V += (a / a.sum())[:, None] * (x - c)
    return unit(V)


def test_it_is_the_loop():
    features = scattered(6, 4, 5, 5)
    part = fitted("netvlad(num_words=5)", features)
    with torch.no_grad():  # as after training, when the three go ways of their own
        for i, parameter in enumerate(part.parameters()):
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)).double()
    expected = np.stack([by_hand(points, part) for points in locations(features)])
    np.testing.assert_allclose(part(features).detach().numpy(), expected, rtol=1e-6, atol=1e-8)


def test_it_starts_as_a_softmax_of_distances():
    features = scattered(6, 4, 5, 5)
    part = fitted("netvlad(num_words=5, alpha=7)", features)
    x = torch.nn.functional.normalize(features.flatten(2).mT, dim=-1)
    a = (-7 * torch.cdist(x, part.centres.detach()).square()).softmax(-1)
    torch.testing.assert_close((x @ part.weight.mT + part.bias).softmax(-1).detach(), a, rtol=1e-5, atol=1e-7)


def test_sharp_assignments_are_hard_vlad():
    features = scattered(6, 4, 5, 5)
    part = fitted("netvlad(num_words=5, alpha=1e6)", features)
    points = unit(np.concatenate(locations(features)))
    k_means = KMeans(5, n_init=1, init=part.centres.detach().numpy(), max_iter=1).fit(points)
    k_means.cluster_centers_ = part.centres.detach().numpy()
    for own, image in zip(part(features).detach().numpy(), locations(features), strict=True):
        x = unit(image)
        nearest = k_means.predict(x)
        for k, centre in enumerate(part.centres.detach().numpy()):
            V = (x[nearest == k] - centre).sum(0)
            if (nearest == k).any():
                np.testing.assert_allclose(own[k], V / np.linalg.norm(V), rtol=1e-4, atol=1e-5)


def test_alpha_gives_the_second_word_a_hundredth():
    points, centres = torch.tensor([[0.0, 0.0], [2.0, 0.0]]).double(), torch.tensor([[0.0, 0.0], [1.0, 0.0]]).double()
    alpha = choose_alpha(points, centres)
    assert abs(alpha - np.log(100) / 2) < 1e-12  # the squares differ by 1 and by 3
    assert choose_alpha(points, centres[:1]) == 1
    same = fitted("netvlad(num_words=2)", torch.ones(3, 4, 2, 2))  # all points equal: no alpha would do
    assert same(torch.ones(3, 4, 2, 2)).isfinite().all()
