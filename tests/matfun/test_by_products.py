"""Matrix functions by products alone, next to SciPy, and in the place of the modules they stand for."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import nn

import bcnn
from bcnn.linalg.operand import Factored
from bcnn.matfun.by_products import ByProducts, power_by_products, product_forms


def spd(cond, dim=6, batch=2):
    random = torch.Generator().manual_seed(0)
    Q = torch.linalg.qr(torch.randn(batch, dim, dim, generator=random, dtype=torch.float64)).Q
    return Q * torch.logspace(0, -np.log10(cond), dim, dtype=torch.float64) @ Q.mT * 3


@pytest.mark.parametrize("p", [0.5, 0.3, 1.0, -0.25, 1.7])
@pytest.mark.parametrize("cond", [1.0, 1e2, 1e5])
def test_powers_are_those_of_scipy(p, cond):
    A = spd(cond)
    wanted = np.stack([scipy.linalg.fractional_matrix_power(one, p) for one in A.numpy()])
    got = power_by_products(A, p, lower=0.2 / cond).numpy()
    assert np.abs(got - wanted).max() < 1e-8 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("module", "oracle"),
    [(bcnn.MatrixSqrt(), scipy.linalg.sqrtm), (bcnn.MatrixLog(), scipy.linalg.logm),
     (bcnn.MatrixPower(0.3), lambda A: scipy.linalg.fractional_matrix_power(A, 0.3))],
)  # fmt: skip
def test_the_form_computes_what_the_module_does(module, oracle):
    X = torch.randn(2, 5, 20, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    A = Factored(X, torch.tensor([0.5, 0.25], dtype=torch.float64))
    wanted = torch.from_numpy(np.stack([oracle(one.numpy()) for one in A.form()])).to(torch.float64)
    for form in (ByProducts(module, dtype=torch.float64), ByProducts(module, dtype=torch.float64, lower=1e-12)):
        assert form.can_be_refined
        assert torch.allclose(form(A), wanted, atol=1e-9)
        assert torch.allclose(form(A.form()), module(A), atol=1e-9)
    assert ByProducts(module)(A).dtype == torch.float64  # whatever it computes in


def test_an_iteration_of_the_run_is_kept_to_the_letter():
    own = bcnn.MatrixSqrt(forward="newton_schulz", backward="unrolled", num_iters=2, scale="trace")
    form = ByProducts(own, dtype=torch.float64)
    A = spd(1e3).float()
    assert not form.can_be_refined
    assert torch.equal(form(A), own(A))
    assert (form(A) - bcnn.sqrtm(A)).abs().max() > 1e-3  # two steps are far from the root


def test_every_function_below_a_module_is_replaced():
    module = nn.Sequential(bcnn.MatrixSqrt(), nn.Sequential(bcnn.MatrixPower(0.5, learnable=True)))
    product_forms(module)
    assert [str(part).split(" by")[0] for part in module.modules() if isinstance(part, ByProducts)] == ["sqrt", "power"]
    assert not list(module.parameters())  # an exponent that was learned is a number now
