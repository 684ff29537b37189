"""Predictions as a table that other programs read, whatever images and classes are called."""

import csv
import io

from bcnn.metrics import Prediction
from bcnn.runs.predictions import to_csv


def test_names_stay_on_one_line_and_are_no_formulas():
    names = ["plain.jpg", "two\rlines.jpg", "two\nlines.jpg", "=1+1.jpg", "+a", "-a", "@a", "a=b"]
    text = to_csv([Prediction(name, (("=cmd()", 0.75), ("b", 0.25)), "b") for name in names])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert len(rows) == len(names) + 1
    assert len(text.splitlines()) == len(rows)
    assert [row[0] for row in rows[1:]] == [
        "plain.jpg", r"two\rlines.jpg", r"two\nlines.jpg", "'=1+1.jpg", "'+a", "'-a", "'@a", "a=b"
    ]  # fmt: skip
    assert rows[1][1:] == ["b", "'=cmd()", "0.750000", "b", "0.250000"]
