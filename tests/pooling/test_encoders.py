"""What poolings with words, and those with weights of locations, have in common."""

import pytest
import torch

from bcnn.linalg.operand import formed
from bcnn.parts.shapes import Maps
from bcnn.pooling import POOLINGS
from bcnn.pooling.head import Head

from .encoders import fitted, scattered

WORDS = (
    "fisher(num_words=3)",
    "vlad(num_words=3)",
    "netvlad(num_words=3, alpha=2)",
    "pd_swfv(num_words=3, num_parts=2)",
)
ALL = (
    *WORDS, "pd_swfv(num_words=3, num_parts=2, parts=True)", "democratic", "democratic(gamma=0)"
)  # fmt: skip


@pytest.mark.parametrize("text", ALL)
def test_gradient(text):
    features = scattered(4, 3, 3, 2).requires_grad_()
    part = fitted(text, features)
    parameters = list(part.parameters())
    assert bool(parameters) == (not text.startswith(("vlad", "democratic")))

    def pooled(features, *_):
        return formed(part(features))

    assert torch.autograd.gradcheck(pooled, (features[:2].detach().requires_grad_(), *parameters))


@pytest.mark.parametrize("text", ALL)
def test_a_mask_leaves_locations_out_and_never_reads_them(text):
    features = scattered(4, 3, 3, 4)
    part = fitted(text, features)
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    mask[:, :, 3] = False
    spoilt = features[:2].masked_fill(~mask[:, None], float("nan")).requires_grad_()
    result = formed(part(spoilt, mask=mask))
    torch.testing.assert_close(result, formed(part(features[:2, :, :, :3])), rtol=1e-8, atol=1e-10)
    result.square().sum().backward()
    assert spoilt.grad.isfinite().all()
    assert (spoilt.grad[..., 3] == 0).all()


@pytest.mark.parametrize("text", ALL)
def test_images_that_are_black_or_masked_throughout_are_finite(text):
    features = scattered(4, 3, 3, 4, dtype=torch.float32)
    part = fitted(text, features)
    black = torch.zeros(1, 3, 3, 4, requires_grad=True)
    for mask in (None, torch.zeros(1, 3, 4, dtype=torch.bool)):
        result = formed(part(black, mask=mask))
        assert result.isfinite().all()
        (gradient,) = torch.autograd.grad(result.sum(), black)
        assert gradient.isfinite().all()
    if "democratic" not in text and "parts" not in text:
        assert (result == 0).all()  # nothing was seen


@pytest.mark.parametrize("text", ALL)
def test_layouts_agree(text):
    features = scattered(4, 3, 3, 4)
    part = fitted(text, features)
    expected = formed(part(features))
    torch.testing.assert_close(formed(part(features.flatten(2))), expected)
    torch.testing.assert_close(formed(part(features.flatten(2).mT, layout="tokens")), expected)
    for i, alone in enumerate(features):
        torch.testing.assert_close(formed(part(alone[None]))[0], expected[i])


@pytest.mark.parametrize("text", ALL)
def test_precisions(text):
    """The bound is that of float32; half precision is no worse once its features are taken as they are."""
    exact = scattered(4, 6, 5, 5).bfloat16()
    part = fitted(text, exact.double())
    expected = formed(part(exact.double())).detach()
    part = part.float()
    for dtype in (torch.float32, torch.bfloat16):
        result = formed(part(exact.to(dtype)))
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.double(), expected, rtol=1e-3, atol=1e-4 * float(expected.abs().max()))


@pytest.mark.parametrize("text", ALL)
def test_compiled(text):
    torch._dynamo.reset()
    features = scattered(4, 6, 3, 3, dtype=torch.float32)
    part = fitted(text, features)
    compiled = torch.compile(lambda x: formed(part(x)), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(features), formed(part(features)))


@pytest.mark.parametrize("text", ALL)
def test_state(text):
    features = scattered(4, 3, 3, 4)
    part = fitted(text, features)
    again = POOLINGS.make(text, inputs=(Maps(3),)).double()
    again.load_state_dict(part.state_dict())
    assert torch.equal(formed(again(features)), formed(part(features)))


@pytest.mark.parametrize("text", WORDS)
def test_words_are_found_in_a_sample(text):
    features = scattered(12, 4, 6, 6)
    first, again = fitted(text, features), fitted(text, features)
    assert all(map(torch.equal, first.state_dict().values(), again.state_dict().values()))
    few = fitted(text.replace(")", ", per_word=5)"), features)
    assert not torch.allclose(few(features), first(features))
    with pytest.raises(ValueError, match=r"expected at least 3 locations in the training images, one per word, got 2"):
        POOLINGS.make(text, inputs=(Maps(4),)).fit(lambda: [(features[:1, :, :1, :2],)])


@pytest.mark.parametrize("text", WORDS)
def test_matrix_functions_are_refused(text):
    with pytest.raises(ValueError, match="matrix_sqrt: expected a symmetric positive semi-definite matrix, got a"):
        Head("improved_bcnn", 6, pooling=text)


@pytest.mark.parametrize("text", WORDS)
def test_bad_options_are_named(text):
    with pytest.raises(ValueError, match="expected `num_words` to be a whole number >= 1, got 0"):
        POOLINGS.make(text.replace("num_words=3", "num_words=0"), inputs=(Maps(4),))
