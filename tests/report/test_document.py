"""A document is checked when it is made, and equal plots are equal bytes."""

from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from bcnn.report.document import Table, picture_of


def plot(*, label="accuracy ± 1"):
    figure = Figure(figsize=(3, 2), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], "o-")
    axes.set_xlabel(label)
    return figure


def test_equal_plots_are_equal_bytes():
    first, second, other = (picture_of(plot(label=x), title="t", alt="a") for x in ("p", "p", "q"))
    assert first == second
    assert first.content != other.content
    assert b"<dc:date>" not in first.content


def test_plots_are_svg_that_needs_no_font():
    picture = picture_of(plot(), title="A plot", alt="one falling line", note="as measured")
    root = ElementTree.fromstring(picture.content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert not list(root.iter("{http://www.w3.org/2000/svg}text"))
    assert (picture.title, picture.alt, picture.note) == ("A plot", "one falling line", "as measured")


@pytest.mark.parametrize("row", [("a",), ("a", "b", "c")])
def test_unequal_rows_are_refused(row):
    with pytest.raises(ValueError, match=rf"table 'T': expected 2 cells in every row.*got {len(row)} in row 1"):
        Table("T", ("x", "y"), (("a", "b"), row))
