"""Pictures are drawn for few classes and for many, for odd names, for images that are gone."""

import numpy as np
import pytest
from PIL import Image

from bcnn.data.contract import TEST, Sample
from bcnn.metrics import Prediction
from bcnn.report.classes import plot_confusion, plot_mistakes
from bcnn.report.comparison import LAYOUT, records_of
from tests.report.runs import metrics_of


@pytest.mark.parametrize("k", [2, 30, 150])
def test_confusion_of_any_size(k, tmp_path):
    classes = [f"class $x$ [{i}] \udcff" for i in range(k)]
    plot_confusion(np.eye(k, dtype=int) * 3, classes, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as image:
        assert min(image.size) >= 400
        assert len(set(np.asarray(image.convert("L")).ravel())) > 10


def test_the_surest_mistakes_are_shown_even_if_an_image_is_gone(tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "here.png")
    samples = {name: Sample(name, 0, TEST, tmp_path / name) for name in ("here.png", "gone.png", "right.png")}
    guesses = [
        Prediction("here.png", (("heron", 0.9), ("gull", 0.1)), "gull"),
        Prediction("gone.png", (("heron", 0.8), ("gull", 0.2)), "gull"),
        Prediction("right.png", (("gull", 0.8), ("heron", 0.2)), "gull"),
    ]
    plot_mistakes(guesses, samples, tmp_path / "m.png")
    red = np.asarray(Image.open(tmp_path / "m.png").convert("RGB")).astype(int)
    assert ((red[..., 0] > 200) & (red[..., 1] < 50)).sum() > 1000  # the picture itself
    plot_mistakes(guesses[2:], samples, tmp_path / "none.png")
    assert (tmp_path / "none.png").exists()


def test_mistakes_are_marked_with_what_decided(tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "here.png")
    samples = {name: Sample(name, 0, TEST, tmp_path / name) for name in ("here.png", "gone.png")}
    guesses = [Prediction(name, (("heron", 0.9),), "gull") for name in samples]
    asked = []

    def marks(worst):
        asked.extend(guess.name for guess in worst)
        return {"here.png": lambda image: Image.new("RGB", image.size, (0, 0, 255))}

    plot_mistakes(guesses, samples, tmp_path / "m.png", marks=marks)
    pixels = np.asarray(Image.open(tmp_path / "m.png").convert("RGB")).astype(int)
    assert asked == ["here.png", "gone.png"]
    assert ((pixels[..., 2] > 200) & (pixels[..., 0] < 50)).sum() > 1000


def test_a_comparison_is_of_the_same_images():
    def metrics(preset, accuracy):
        return metrics_of(preset=preset, accuracy=accuracy, interval95=[accuracy - 0.1, accuracy + 0.1])

    def guesses(right):
        return [Prediction(str(i), (("x" if ok else "y", 1.0),), "x") for i, ok in enumerate(right)]

    records = records_of(
        [metrics("average", 0.25), metrics("bcnn", 0.75)],
        [guesses([True, False, False, False]), guesses([False, True, True, True])],
    )
    assert records[0]["against"] == ""
    assert records[1]["against"] == "average"
    assert records[1]["difference"] == 0.5
    assert records[1]["p"] == pytest.approx(0.625)  # 1 against 3 of 4: 2 (1 + 4) / 16
    assert LAYOUT.cells(records[1])[1:5] == ("75.0", "65.0 to 85.0", "average", "+50.0")
    assert "| bcnn | 75.0 |" in LAYOUT.markdown(records)
