"""Signed square root and l2: the paper's values, finite derivatives at zero, and the text that names them."""

import numpy as np
import pytest
import torch

import bcnn
from bcnn.parts.shapes import Spd
from bcnn.pooling.normalize import NORMALIZATIONS, l2_normalize, shifted_sqrt, signed_sqrt


def paper(x):
    return np.sign(x) * np.sqrt(np.abs(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e12])
def test_signed_square_root_is_the_papers_away_from_zero(dtype, scale):
    x = scale * torch.linspace(-3, 3, 60, dtype=dtype)  # an even number: none is zero, the mean is 1.7
    expected = paper(x.double().numpy())
    np.testing.assert_allclose(signed_sqrt(x).double().numpy(), expected, rtol=3e-3)
    large = x.abs() > 1.7 * scale
    np.testing.assert_allclose(signed_sqrt(x)[large].double().numpy(), expected[large.numpy()], rtol=4e-7)
    np.testing.assert_allclose(signed_sqrt(x, delta=1e-8).double().numpy(), expected, rtol=4e-7)


def test_signed_square_root_is_the_documented_formula():
    x = torch.tensor([[0.0, 1e-3, -0.5, 2.0]], dtype=torch.float64)
    weights = torch.tensor([1.0, 2.0, 2.0, 1.0], dtype=torch.float64)
    mean = np.sqrt(np.average(x.numpy()[0] ** 2, weights=weights.numpy()))
    expected = x.numpy() / (x.numpy() ** 2 + (0.1 * mean) ** 2) ** 0.25
    np.testing.assert_allclose(signed_sqrt(x, delta=0.1, weights=weights).numpy(), expected, rtol=1e-12)


def test_signed_square_root_has_a_finite_derivative_everywhere():
    for values in ([0.0, 1e-30, -1e-12, 1.0, 3e38], [0.0, 0.0], [0.0, 1e-20]):
        x = torch.tensor(values, requires_grad=True)
        y = signed_sqrt(x)
        y.sum().backward()
        assert y.isfinite().all()
        assert y[0] == 0
        assert x.grad.isfinite().all()
    smooth = torch.tensor([0.0, 1e-4, -0.3, 2.0], dtype=torch.float64, requires_grad=True)
    for weights in (None, torch.tensor([1.0, 2.0, 2.0, 1.0], dtype=torch.float64)):
        assert torch.autograd.gradcheck(lambda x, w=weights: signed_sqrt(x, delta=0.1, weights=w), (smooth,))
        assert torch.autograd.gradgradcheck(lambda x, w=weights: signed_sqrt(x, delta=0.1, weights=w), (smooth,))
    assert signed_sqrt(torch.zeros(2, 0)).shape == (2, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_room_at_zero(dtype):
    x = torch.tensor([0.0, 1.0, -4.0, 0.25], dtype=dtype)
    assert signed_sqrt(x, delta=1e-8).tolist() == [0.0, 1.0, -2.0, 0.5]
    assert signed_sqrt(x).dtype == l2_normalize(x).dtype == shifted_sqrt(x).dtype == dtype
    assert (l2_normalize(0 * x) == 0).all()


def test_shifted_square_root_is_the_released_code():
    x = torch.linspace(-2, 2, 9, dtype=torch.float64)
    expected = x.sign() * ((x.abs() + 1e-5).sqrt() - 1e-5**0.5)
    torch.testing.assert_close(shifted_sqrt(x), expected)


def test_l2_has_length_one_and_leaves_zero_alone():
    x = torch.randn(3, 4, 50, dtype=torch.float64)
    torch.testing.assert_close(l2_normalize(x), x / x.norm(dim=-1, keepdim=True))
    zero = torch.zeros(1, 5, requires_grad=True)
    l2_normalize(zero).sum().backward()
    assert (l2_normalize(zero) == 0).all()
    assert (zero.grad == 1e6).all()  # 1 / length
    huge = torch.full((1, 4), 1e30)
    torch.testing.assert_close(l2_normalize(huge), torch.full((1, 4), 0.5))
    assert l2_normalize(torch.zeros(2, 0)).shape == (2, 0)


def test_l2_is_smooth_at_zero_with_weights_or_without():
    x = torch.tensor([[0.0, 0.0, 0.0], [0.3, -0.2, 2.0]], dtype=torch.float64, requires_grad=True)
    for weights in (None, torch.tensor([1.0, 2.0, 1.0], dtype=torch.float64)):
        assert torch.autograd.gradcheck(lambda x, w=weights: l2_normalize(x, length=0.1, weights=w), (x,))
        assert torch.autograd.gradgradcheck(lambda x, w=weights: l2_normalize(x, length=0.1, weights=w), (x,))


def test_text_becomes_a_module_with_its_options():
    assert NORMALIZATIONS.make("signed_sqrt(1e-3)").delta == 1e-3
    assert NORMALIZATIONS.make("l2(length=0.5)").length == 0.5
    assert NORMALIZATIONS.make("matrix_power(0.3)").p == 0.3
    root = NORMALIZATIONS.make("matrix_sqrt(forward='newton_schulz', num_iters=7)")
    assert isinstance(root, bcnn.MatrixSqrt)
    assert root.options["num_iters"] == 7
    for name in NORMALIZATIONS:
        assert name.split("_")[0] in repr(NORMALIZATIONS.make(name, inputs=(Spd(3),))).lower()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l3", "unknown normalization 'l3'; Available: matrix_sqrt"),
        ("l2()()", "expected a normalization such as"),
        ("__import__('os')", "unknown normalization '__import__'"),
        ("l2(open('x'))", "expected a normalization such as"),
        ("l2(", "expected a normalization such as"),
        ("", "expected a normalization such as"),
        ("l2(**{'length': 3.0})", "expected a normalization such as"),
        ("l2(width=3)", "expected options that l2 takes"),
        ("l2(length=0)", "expected `length` to be a number > 0 and <= 1e.15, got 0"),
        ("signed_sqrt(delta=-1)", "expected `delta` to be a number >= 0"),
        ("matrix_power(p='a')", "expected `p` to be a number"),
        ("matrix_sqrt(steps=3)", "expected options that matrix_sqrt takes .*, got 'steps'"),
    ],
)
def test_wrong_text_is_named(text, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        NORMALIZATIONS.make(text)
