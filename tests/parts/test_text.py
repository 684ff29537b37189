"""Parts as text: read, written in one form, refused in words."""

import pytest

from bcnn.parts.text import read, split
from bcnn.pooling import POOLINGS
from bcnn.pooling.normalize import NORMALIZATIONS


@pytest.mark.parametrize(
    ("registry", "texts", "form"),
    [
        (POOLINGS, ["bilinear", "bilinear()", "bilinear(0.001)", "bilinear(eps=1e-3)", " bilinear ( eps = .001 )"],
         "bilinear"),
        (POOLINGS, ["bilinear(1, absolute)", "bilinear(eps=1.0,eps_scale='absolute')",
                    "bilinear(eps_scale=absolute, eps=1)"],
         "bilinear(eps=1.0, eps_scale='absolute')"),
        (NORMALIZATIONS, ["matrix_power(0.3)", "matrix_power(p=0.3)"], "matrix_power(p=0.3)"),
        (NORMALIZATIONS, ["matrix_power", "matrix_power(0.5)"], "matrix_power"),
        (NORMALIZATIONS, ["matrix_sqrt(forward='auto')", "matrix_sqrt"], "matrix_sqrt"),
    ],
)  # fmt: skip
def test_a_part_has_one_text(registry, texts, form):
    assert {str(registry.read(text)) for text in texts} == {form}
    assert str(registry.read(form)) == form


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bilinear(0.1, eps=0.2)", "each once, got it twice"),
        ("bilinear(eps=1, eps=2)", "expected a pooling such as"),
        ("bilinear(1, 2, 3)", r"expected options of bilinear by name, as in name\(option=value\)"),
        ("bilinear(epsilon=1)", r"expected options that bilinear takes \(eps, eps_scale\), each once, got 'epsilon'"),
        ("bilinear(eps=" + "9" * 400 + ")", "expected eps to be a number that a float can hold"),
        ("(" * 3000, "expected a pooling such as"),
        ("bilinear(eps=__import__('os'))", "expected a pooling such as"),
        ("", "expected a pooling such as"),
    ],
)
def test_wrong_text_is_named(text, message):
    with pytest.raises(ValueError, match=message):
        POOLINGS.make(text)


def test_names_of_networks():
    assert read("timm/resnet50.a1_in1k(cut=2)").name == "timm/resnet50.a1_in1k"
    assert read("timm/hf-hub:timm/resnet18@main").name == "timm/hf-hub:timm/resnet18@main"
    assert split("vgg16(cut=relu4_3, proj_dim=64) , alexnet,") == ["vgg16(cut=relu4_3, proj_dim=64)", "alexnet"]


@pytest.mark.parametrize("value", ["a, b", "a) b", "it's (so", 'say "x, y"', "a \\' b, c"])
def test_commas_and_brackets_in_quotes_do_not_split(value):
    text = f"vgg16(weights={value!r}, proj_dim=64)"
    assert split(f"{text}, alexnet") == [text, "alexnet"]
    assert read(split(text)[0]).options == {"weights": value, "proj_dim": 64}


def test_an_apostrophe_alone_is_a_letter():
    assert split("it's, alexnet") == ["it's", "alexnet"]


def test_what_is_known_of_a_part():
    eps = POOLINGS["bilinear"].options["eps"]
    assert (eps.type, eps.default) == ("float", 1e-3)
    assert eps.help.startswith("the ridge, in units of eps_scale")
    assert list(NORMALIZATIONS["matrix_power"].options)[:3] == ["p", "learnable", "forward"]
    assert POOLINGS["asymmetric"].num_inputs == 2
    assert not POOLINGS["bilinear"].needs_fit
    assert not POOLINGS["bilinear"].wants_inputs
