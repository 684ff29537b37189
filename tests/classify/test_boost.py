"""Boosting: the risk and its gradient, the step against SciPy's search, the learner against scikit-learn's."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from bcnn.classify.boost import MAX_EXPONENT, LeastSquares, risk, step_length, weights


@pytest.fixture
def task():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 4, (30,), generator=generator)
    X = torch.randn(30, 12, generator=generator, dtype=torch.float64) + torch.nn.functional.one_hot(labels, 12)
    f = torch.randn(30, 4, generator=generator, dtype=torch.float64)
    return X, labels, f


def test_risk_is_the_sum_over_pairs(task):
    _, labels, f = task
    expected = sum(
        np.exp(-0.5 * float(f[i, y] - f[i, k])) for i, y in enumerate(labels.tolist()) for k in range(4) if k != y
    )
    assert risk(f, labels) == pytest.approx(expected, rel=1e-12)


def test_of_two_classes_it_is_adaboosts(task):
    _, labels, f = task
    labels, f = labels % 2, torch.stack([f[:, 0], -f[:, 0]], 1)
    sign = 1.0 - 2 * labels
    assert risk(f, labels) == pytest.approx(float(torch.exp(-sign * f[:, 0]).sum()), rel=1e-12)


def test_weights_are_twice_the_gradient(task):
    _, labels, f = task
    f = f.clone().requires_grad_()
    own = [f[i, y] - f[i] for i, y in enumerate(labels.tolist())]
    total = torch.exp(-0.5 * torch.stack(own)).sum() - len(f)  # without k = y
    (gradient,) = torch.autograd.grad(total, f)
    torch.testing.assert_close(weights(f.detach(), labels), 2 * gradient, rtol=1e-10, atol=1e-12)


def test_steps_are_the_best_ones(task):
    X, labels, f = task
    g = X @ torch.randn(12, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    g = g if (weights(f, labels) * g).sum() < 0 else -g  # downhill
    found = step_length(f, g, labels)
    best = minimize_scalar(lambda alpha: risk(f + alpha * g, labels), bounds=(0, 5), method="bounded",
                           options={"xatol": 1e-10})  # fmt: skip
    assert found == pytest.approx(best.x, rel=1e-5)
    assert step_length(f, -g, labels) == 0  # uphill
    assert step_length(f, torch.zeros_like(g), labels) == 0
    perfect = torch.nn.functional.one_hot(labels, 4).double()  # the risk falls for ever
    assert step_length(f, perfect, labels) == 2 * MAX_EXPONENT


@pytest.mark.parametrize("C", [0.1, 10.0])
def test_the_learner_is_ridge_regression(task, C):
    from sklearn.linear_model import Ridge

    X, _, targets = task
    own = LeastSquares(X @ X.mT, C).fit(targets)
    expected = Ridge(alpha=1 / C).fit(X.numpy(), targets.numpy())
    np.testing.assert_allclose(own.g, expected.predict(X.numpy()), atol=1e-10)
    np.testing.assert_allclose(own.beta.mT @ X, expected.coef_, atol=1e-10)
    np.testing.assert_allclose(own.bias, expected.intercept_, atol=1e-10)


@pytest.mark.parametrize("shrinkage", [1.0, 0.1])
def test_the_risk_falls_round_by_round(task, shrinkage):
    X, labels, _ = task
    solver, f = LeastSquares(X @ X.mT, 0.05), torch.zeros(30, 4, dtype=torch.float64)
    risks = [risk(f, labels)]
    assert risks[0] == 90
    for _ in range(20):
        g = solver.fit(-weights(f, labels)).g
        f = f + shrinkage * step_length(f, g, labels) * g
        risks.append(risk(f, labels))
    assert all(after < before for before, after in pairwise(risks))
    assert risks[-1] < 0.8 * risks[0]
