"""The picture of an explanation: its words do not run into each other, whatever the shapes of the photographs."""

import itertools

import matplotlib.figure
import numpy as np
from PIL import Image

from bcnn.data.contract import TRAIN, Sample
from bcnn.data.preprocess import Preprocessing
from bcnn.metrics import Prediction
from bcnn.report.explanation import Explanation, Speaker, draw


def speaker(width, height):
    return Speaker(
        "a", "165.Chestnut_sided_Warbler", 0.9, Sample("a", 0, TRAIN, lambda: Image.new("RGB", (width, height)))
    )


def test_words_do_not_run_into_each_other(tmp_path, monkeypatch):
    drawn = []
    save = matplotlib.figure.Figure.savefig
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda self, *a, **o: (drawn.append(self), save(self, *a, **o))
    )
    row = tuple(speaker(*size) for size in [(300, 200), (300, 220), (300, 300), (300, 200), (300, 240)])
    prediction = Prediction("a", (("165.Chestnut_sided_Warbler", 0.6), ("169.Magnolia_Warbler", 0.4)))
    explanation = Explanation(prediction, "165.Chestnut_sided_Warbler", 0.5, np.ones((3, 3)), row, row)
    draw(explanation, Image.new("RGB", (500, 330)), Preprocessing(), tmp_path / "out.png")
    figure = drawn[0]
    rows = figure.subfigs[1:]
    assert len(rows) == 2
    for part in rows:
        title = part._suptitle.get_window_extent()
        boxes = [axes.title.get_window_extent() for axes in part.axes]
        assert max(box.y1 for box in boxes) <= title.y0
        assert len({round(box.y0) for box in boxes}) == 1  # all at the same height
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))
        assert part.axes[0].title.get_text().startswith("165.Chestnut_sided_Warbler\n")
