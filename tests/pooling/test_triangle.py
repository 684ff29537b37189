"""Half of a symmetric matrix with the inner products of the whole."""

import pytest
import torch

from bcnn.pooling.triangle import full_matrix, upper_triangle

from ..helpers import spd


@pytest.mark.parametrize("d", [1, 2, 5, 8])
def test_inner_products_are_those_of_the_matrices(d):
    Y, Z = spd(4, d=d, seed=1), spd(4, d=d, seed=2)
    v, w = upper_triangle(Y), upper_triangle(Z)
    assert v.shape == (4, d * (d + 1) // 2)
    torch.testing.assert_close(v @ w.mT, torch.einsum("iab,jab->ij", Y, Z))


def test_there_and_back():
    Z = spd(2, 3, d=6)
    torch.testing.assert_close(full_matrix(upper_triangle(Z)), Z)
    assert torch.autograd.gradcheck(lambda A: full_matrix(upper_triangle(A)), (spd(d=3).requires_grad_(),))


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"\(\.\.\., d, d\), got \(2, 3\)"):
        upper_triangle(torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"d \(d \+ 1\) / 2 entries.*got 5"):
        full_matrix(torch.zeros(5))


def test_made_in_inference_mode_and_used_in_training():
    with torch.inference_mode():
        upper_triangle(torch.eye(17))
    A = torch.eye(17, requires_grad=True)
    upper_triangle(A).sum().backward()
    assert A.grad.isfinite().all()
