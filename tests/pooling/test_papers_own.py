"""The paper's own ridge and signed square root, by name."""

import pytest
import torch

import bcnn
from bcnn.pooling.head import Head
from bcnn.pooling.normalize import AUTHORS_SHIFT, signed_sqrt
from bcnn.runs.config import RunConfig
from tests.pooling.helpers import relu_features


def test_exact_signed_square_root_with_the_authors_gradient():
    x = torch.tensor([-4.0, -1e-6, 0.0, 1e-12, 9.0], dtype=torch.float64, requires_grad=True)
    y = signed_sqrt(x, delta=0.0)
    assert torch.equal(y, x.detach().sign() * x.detach().abs().sqrt())
    y.sum().backward()
    torch.testing.assert_close(x.grad, 0.5 / (x.detach().abs() + AUTHORS_SHIFT).sqrt())
    head = Head(normalize=["matrix_sqrt", "signed_sqrt(delta=0)", "l2"])
    torch.testing.assert_close(head(relu_features(2, 6, 4, 4)), Head()(relu_features(2, 6, 4, 4)), rtol=1e-3, atol=1e-4)
    compiled = torch.compile(lambda x: signed_sqrt(x, delta=0.0), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), y)


def test_negative_deltas_are_refused():
    with pytest.raises(ValueError, match=r"signed_sqrt: expected `delta` to be a number >= 0 and <= 1e\+15, got -1"):
        Head(normalize=["signed_sqrt(delta=-1)"])


@pytest.mark.parametrize("shape", [(3, 6, 4, 4), (3, 9, 2, 2)], ids=["thick", "thin"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_ridge_relative_to_the_largest_eigenvalue(shape, scale):
    features = scale * relu_features(*shape)
    A = bcnn.bilinear_pool(features, eps=0.25, eps_scale="largest")
    bare = bcnn.bilinear_pool(features, eps=0.0)
    largest = torch.linalg.eigvalsh(bare)[:, -1]
    torch.testing.assert_close(A - bare, 0.25 * largest[:, None, None] * torch.eye(shape[1], dtype=A.dtype))
    leaf = features.clone().requires_grad_()
    Head(eps=1e-6, eps_scale="largest")(leaf)[:, 1].sum().backward()
    assert leaf.grad.isfinite().all()


def test_units_of_the_ridge_reach_the_head_of_a_run():
    config = RunConfig(spec="textures", preset=("improved_bcnn",), eps=1e-6, eps_scale="largest")
    assert config.head("improved_bcnn").pooling == "bilinear(eps=1e-06, eps_scale='largest')"
    with pytest.raises(ValueError, match="unknown eps_scale 'largst'; did you mean 'largest'"):
        RunConfig(spec="textures", preset=("improved_bcnn",), eps_scale="largst")
    with pytest.raises(ValueError, match="expected a preset with a ridge for eps_scale, got average alone"):
        RunConfig(spec="textures", preset=("average",), eps_scale="largest")
