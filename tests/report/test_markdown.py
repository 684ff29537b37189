"""Markdown shows the text it was given, whatever is in it."""

import pytest

from bcnn.report.document import Details, Document, Gallery, Picture, Section, Table
from bcnn.report.markdown import render_markdown, table_markdown

TABLE = Table(
    "Table 1",
    ("network", "layer", "ours %"),
    (("VGG-D", "relu5_3", "83.0 ± 0.4"), ("a|b", "", "not run")),
    num_labels=2,
    note="Mean of 3 seeds.",
    strong=frozenset({(0, 2), (1, 1)}),
    faint=frozenset({(1, 2)}),
)


def document(*blocks, text=()):
    return Document("Report", ("The lead.",), (Section("One", "one", text, blocks),))


def paragraphs(*texts):
    return render_markdown(document(text=texts)).split("## One\n\n")[1].rstrip("\n").split("\n\n")


def test_a_table_in_full():
    assert table_markdown(TABLE) == "\n".join(
        [
            "**Table 1**",
            "",
            "| network | layer | ours % |",
            "| --- | --- | ---: |",
            "| VGG-D | relu5_3 | **83.0 ± 0.4** |",
            r"| a\|b |  | not run |",
            "",
            "Mean of 3 seeds.",
        ]
    )


def test_a_cell_stays_in_its_column():
    table = Table("T", ("a", "b"), ((r"back\slash | bar", "two\nlines"),))
    assert table_markdown(table).splitlines()[-1] == r"| back\\slash \| bar | two lines |"


def test_the_order_of_a_document():
    picture = Picture("Plot", b"<svg/>", "a rising line", "As measured.")
    text = render_markdown(document(TABLE, picture, Details("Log", "x\n"), text=("Words.",)))
    expected = ["# Report", "The lead.", "## One", "Words.", "**Table 1**", "*Plot: a rising line*", "As measured."]
    expected += ["**Log**", "```\nx\n```\n"]
    places = [text.index(f"{part}\n" if not part.endswith("\n") else part) for part in expected]
    assert places == sorted(places)
    assert text.endswith("```\n")
    assert "![" not in text


def test_a_fence_is_longer_than_those_in_the_text():
    text = render_markdown(document(Details("Log", "a\n````\nb")))
    assert text.endswith("`````\na\n````\nb\n`````\n")


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("improved_bcnn, 2 < 3", r"improved_bcnn, 2 \< 3"),
        ("*x* _y_ `z` [0, 1] <script>", r"\*x\* \_y\_ \`z\` \[0, 1] \<script>"),
        ("costs $5 or $6, ~~no~~ &lt; R&D", r"costs \$5 or \$6, \~\~no\~\~ \&lt; R&D"),
        ("- no list", r"\- no list"),
        ("1. no list", r"1\. no list"),
        ("## no heading", r"#\# no heading"),
        ("> no quote", r"\> no quote"),
        ("--- no rule", r"--\- no rule"),
        ("-0.4 points", "-0.4 points"),
        ("3.5 points", "3.5 points"),
    ],
)
def test_plain_text_stays_plain(plain, expected):
    assert paragraphs(plain) == [expected]


def test_a_gallery_is_a_list_of_what_its_pictures_show():
    pictures = (Picture("labelled *a*", b"", "a.jpg", note="looks like b"), Picture("labelled c", b"", "c.jpg"))
    text = render_markdown(document(Gallery("Photographs", pictures)))
    assert text.split("## One\n\n")[1].splitlines() == [r"- labelled \*a\*: looks like b", "- labelled c: c.jpg"]
