"""The page as a parser sees it: whole, escaped, and asking nothing of the outside."""

import base64
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from bcnn.report.document import Details, Document, Picture, Section, Table
from bcnn.report.page import render_html, write_page

VOID = {"meta", "link", "img"}
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="4" height="3"><script>1</script></svg>'
EVIL = """<script>alert("1")</script> & 'x' {{ 7 * 7 }}"""
TABLE = Table(
    f"Title {EVIL}",
    ("network", "layer", "ours ± sd", EVIL),
    (("VGG-D", "relu5_3", "83.0 ± 0.4", "a < b"), ("", "", "not run", "a label that is longer than the longest")),
    num_labels=2,
    note=f"Note {EVIL}",
    strong=frozenset({(0, 2)}),
    faint=frozenset({(1, 2)}),
)
DOCUMENT = Document(
    f"Report {EVIL}",
    (f"Lead {EVIL}", "second"),
    (
        Section(
            "One", "table1_normalization", (f"Text {EVIL}",), (TABLE, Details(f"Log {EVIL}", f"\n  {EVIL}\n\tend"))
        ),
        Section("Two", "figure2", blocks=(Picture(f"Plot {EVIL}", SVG, f'alt "{EVIL}"', "seen"), TABLE)),
    ),
)


class Tree(HTMLParser):
    """Start tags with their attributes, the text in each, and whether every tag was closed in its turn."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.declaration = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_decl(self, decl):
        self.declaration = decl

    def handle_starttag(self, tag, attrs):
        self.found.append({"tag": tag, "text": "", **dict(attrs)})
        if tag not in VOID:
            self.open.append(self.found[-1])

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag):
        return [element for element in self.found if element["tag"] == tag]

    def one(self, tag):
        (element,) = self.all(tag)
        return element


@pytest.fixture(scope="module")
def tree():
    return Tree(render_html(DOCUMENT))


def test_the_page_says_what_it_is(tree):
    assert tree.declaration == "DOCTYPE html"
    assert tree.one("html")["lang"] == "en"
    assert tree.one("title")["text"] == DOCUMENT.title
    assert tree.one("h1")["text"] == DOCUMENT.title
    meta = {element.get("name") or element.get("http-equiv"): element for element in tree.all("meta")}
    assert meta[None]["charset"] == "utf-8"
    assert meta["viewport"]["content"] == "width=device-width, initial-scale=1"
    policy = meta["Content-Security-Policy"]["content"]
    assert policy == "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def test_text_stays_text(tree):
    assert not tree.all("script")
    paragraphs = [element["text"] for element in tree.all("p")]
    assert {f"Lead {EVIL}", "second", f"Text {EVIL}"} <= set(paragraphs)
    assert tree.all("img")[0]["alt"] == f'alt "{EVIL}"'
    assert tree.all("summary")[0]["text"] == f"Log {EVIL}"


def test_preformatted_text_is_kept_to_the_blank(tree):
    assert tree.one("pre")["text"] == f"\n\n  {EVIL}\n\tend"  # browsers drop the first line end


def test_nothing_comes_from_outside(tree):
    for element in tree.found:
        for name in ("src", "href", "srcset", "data", "action", "poster", "style"):
            assert element.get(name, "#").startswith(("#", "data:")), element
    style = tree.one("style")["text"]
    assert "url(" not in style
    assert "@import" not in style
    assert "http" not in render_html(DOCUMENT).replace("http-equiv", "")


def test_links_lead_to_sections(tree):
    anchors = [section["id"] for section in tree.all("section")]
    assert anchors == ["table1_normalization", "figure2"]
    assert [(a["href"], a["text"]) for a in tree.all("a")] == [("#table1_normalization", "One"), ("#figure2", "Two")]


def test_tables_keep_their_cells_and_say_which_are_labels(tree):
    assert len(tree.all("table")) == 2
    cells = [e for e in tree.found if e["tag"] in ("th", "td") and e.get("scope") != "col"]
    half = cells[: len(cells) // 2]
    assert [e["text"] for e in half] == [text for row in TABLE.rows for text in row]
    assert [e["tag"] for e in half] == ["th", "th", "td", "td", "td", "td", "td", "td"]  # an empty label labels nothing
    assert [e.get("class") for e in half] == ["label", "label", None, None, "label", "label", None, "long"]
    assert all(e["scope"] == "row" for e in half if e["tag"] == "th")
    heads = [e for e in tree.all("th") if e.get("scope") == "col"][:4]
    assert [e["text"] for e in heads] == list(TABLE.header)
    assert [e.get("class") for e in heads] == ["label", "label", None, None]
    assert {e["text"] for e in tree.all("caption")} == {TABLE.title}
    assert {e["text"] for e in tree.all("strong")} == {"83.0 ± 0.4"}
    assert {e["text"] for e in tree.all("span") if e.get("class") == "faint"} == {"not run"}
    assert tree.all("figcaption")[0]["text"] == TABLE.note


def test_tables_scroll_in_a_box_that_keyboards_reach(tree):
    boxes = [e for e in tree.all("div") if e.get("class") == "scroll"]
    assert [(e["role"], e["tabindex"], e["aria-label"]) for e in boxes] == [("region", "0", TABLE.title)] * 2


def test_pictures_are_inside_the_page(tree):
    kind, content = tree.one("img")["src"].split(";base64,")
    assert kind == "data:image/svg+xml"
    assert base64.b64decode(content) == SVG


def test_one_section_needs_no_contents():
    assert not Tree(render_html(Document("D", (), DOCUMENT.sections[:1]))).all("nav")


def test_the_template_comes_with_the_package():
    assert "{{ document.title }}" in files("bcnn.report").joinpath("page.html.j2").read_text(encoding="utf-8")


def test_the_file_is_whole_and_utf8(tmp_path):
    odd = Document("± ε ≥ 10⁻⁵, \udcff", (), ())
    write_page(odd, tmp_path / "new" / "report.html")
    text = (tmp_path / "new" / "report.html").read_bytes().decode("utf-8")
    assert Tree(text).one("h1")["text"] == "± ε ≥ 10⁻⁵, \\udcff"
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["report.html"]
