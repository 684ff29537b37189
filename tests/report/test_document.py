"""A document is checked when it is made, and equal plots are equal bytes."""

import io
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure
from PIL import Image

from bcnn.report.document import Document, Picture, Section, Table, picture_of


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
    assert picture.media_type == "image/svg+xml"


def test_png_is_told_from_its_content():
    buffer = io.BytesIO()
    Image.new("RGB", (2, 2)).save(buffer, "PNG")
    assert Picture("t", buffer.getvalue(), "a").media_type == "image/png"


def test_other_pictures_are_refused():
    with pytest.raises(ValueError, match="picture 't': expected the content of an SVG or PNG file, got b'GIF89a"):
        Picture("t", b"GIF89a...", "a")


@pytest.mark.parametrize("row", [("a",), ("a", "b", "c")])
def test_unequal_rows_are_refused(row):
    with pytest.raises(ValueError, match=rf"table 'T': expected 2 cells in every row.*got {len(row)} in row 1"):
        Table("T", ("x", "y"), (("a", "b"), row))


@pytest.mark.parametrize("cell", [(1, 0), (0, 2), (-1, 0)])
@pytest.mark.parametrize("kind", ["strong", "faint"])
def test_marked_cells_must_exist(kind, cell):
    with pytest.raises(ValueError, match="expected strong and faint cells within 1 rows and 2 columns"):
        Table("T", ("x", "y"), (("a", "b"),), **{kind: frozenset({cell})})


@pytest.mark.parametrize("anchor", ["", "two words", "1st", 'a"b', "a:1", "a\n"])
def test_anchors_are_safe_in_links_and_labels(anchor):
    with pytest.raises(ValueError, match="section 'S': expected an anchor"):
        Section("S", anchor)


def test_anchors_differ():
    with pytest.raises(ValueError, match="got 'a' twice; rename that of section 'Second'"):
        Document("D", (), (Section("First", "a"), Section("Second", "a")))
