"""The page in a real browser: quiet, whole, and never wider than the window."""

import pytest
from matplotlib.figure import Figure

from bcnn.report.document import Details, Document, Picture, Section, Table, picture_of
from bcnn.report.page import write_page
from tests.browser import browser_or_skip, open_page

LONG_WORD = "verylongnamewithoutanyplacetobreak" * 6


def plot() -> Picture:
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, slope in (("Birds", 2.0), ("Aircrafts", 1.4), ("Cars", 1.1)):
        axes.plot([0, 1, 5, 10, 20], [80 + slope * (1 - 0.6**n) for n in (0, 1, 5, 10, 20)], "o-", label=name)
    axes.set_xlabel("Newton iterations")
    axes.set_ylabel("accuracy %")
    axes.legend()
    return picture_of(
        figure,
        title="Accuracy against the number of Newton iterations.",
        alt="Three rising curves that are flat from five iterations on.",
        note="Five iterations do what twenty do; mean of three seeds, p = 0.5, ε = 10⁻⁵.",
    )


def comparison() -> Table:
    names = (
        "no normalization",
        "signed √ + ℓ₂",
        "matrix √ + signed √ + ℓ₂",
        "log-Euclidean, with a label that is long",
    )
    rows = tuple(
        (name, *(text for j in range(3) for text in (f"{78 + i + j}.{j}", f"{77 + i + j}.9 ± 0.{j}", f"+{i}.{j}")))
        for i, name in enumerate(names)
    )
    header = (
        "normalization",
        *(f"{d} {what}" for d in ("Birds", "Cars", "Aircrafts") for what in ("paper", "ours", "Δ")),
    )
    note = "Accuracy in % on the test split; ours: mean ± standard deviation over three seeds."
    rows = (*rows, ("matrix log", *(("not run",) * 9)))
    faint = frozenset((4, j) for j in range(1, 10))
    return Table(
        "Table 1. Effect of normalization", header, rows, note=note, strong=frozenset({(2, 2), (2, 5)}), faint=faint
    )


def small() -> Table:
    return Table(
        "Where it ran",
        ("network", "layer", "minutes"),
        (("VGG-D", "relu5_3", "12.5"), ("", "relu5_2", "\u22120.4"), (LONG_WORD, "pool5", "1 234.0")),
        num_labels=2,
    )


def wide() -> Table:
    return Table(
        "Fourteen columns, and a title that is longer than a telephone is wide: each setting beside each other one",
        ("run", *(f"column {j}" for j in range(13))),
        tuple(
            (f"improved_bcnn, lr 0.00{i}, backward lyapunov", *(f"{i + j}.0 ± 0.{j} (3 of 3)" for j in range(13)))
            for i in range(5)
        ),
        note="±: standard deviation. " * 8,
    )


def tall() -> Table:
    return Table(
        "Sixty rows",
        ("step", "loss", "remark"),
        tuple((str(i), f"{1 / (i + 1):.4f}", "≤ 1 · 10⁻⁵ → ok") for i in range(60)),
    )


def rich_document() -> Document:
    details = Details(
        "How to run it, with very long lines", f"bcnn train cub --out {'runs/' * 80}\n\tindented\n{LONG_WORD * 3}"
    )
    lead = (
        "The matrix square root gains 2.1 points on Birds, as the paper says; the logarithm was not run.",
        "All numbers below were measured by the code of this repository, and every table names its seeds.",
    )
    text = (
        "The paper normalizes the pooled matrix before the signed square root and the ℓ₂ norm; ε is 1, as in Sec. 3.2. "
        * 2,
    )
    return Document(
        "Improved bilinear pooling, measured again",
        lead,
        (
            Section("Table 1: normalization of frozen features", "table1_normalization", text, (comparison(), plot())),
            Section("Figure 2: how many iterations", "figure2", (f"A word: {LONG_WORD}.",), (plot(), details, small())),
            Section(
                f"Everything at once {LONG_WORD}", "wide", text * 2, (wide(), tall(), Details("Log", "line\n" * 30))
            ),
        ),
    )


@pytest.fixture
def page_path(tmp_path):
    write_page(rich_document(), tmp_path / "report.html")
    return tmp_path / "report.html"


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_quiet_and_fits(page_path, width):
    with open_page(page_path, width) as opened:
        assert opened.page.evaluate("document.images.length") == 2
        assert opened.broken_images() == []
        assert opened.is_as_wide_as_the_window()
        assert opened.sticking_out() == []
        opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert opened.is_as_wide_as_the_window()
        assert opened.sticking_out() == []
        opened.page.click("nav a >> nth=-1")
        assert opened.page.evaluate("location.hash") == "#wide"
        assert opened.messages == []


def test_wide_tables_scroll_in_their_box_and_keep_their_labels_in_sight(page_path):
    with open_page(page_path, 400) as opened:
        box = opened.page.get_by_role("region", name="Fourteen columns")
        assert box.evaluate("b => b.scrollWidth > 2 * b.clientWidth")
        box.evaluate("b => { b.scrollLeft = 600; }")
        for kept in ("caption span", "tbody tr:first-child th"):
            assert box.locator(kept).evaluate("e => e.getBoundingClientRect().left") == pytest.approx(17.6, abs=1)
            assert box.locator(kept).evaluate("e => e.getBoundingClientRect().right") <= 400
        assert box.locator("tbody tr:first-child td").first.evaluate("e => e.getBoundingClientRect().left") < 0


def test_at_night_the_page_is_dark_and_pictures_are_on_white(page_path):
    with open_page(page_path, 1400, dark=True) as opened:
        colour = "e => getComputedStyle(e).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)"
        assert max(opened.page.locator("body").evaluate(colour)) < 64
        assert opened.page.locator("img").first.evaluate(colour) == [255, 255, 255]
        assert opened.messages == []


def test_on_paper_folded_text_is_open_and_nothing_is_cut_off(page_path):
    with open_page(page_path, 690) as opened:  # A4 without its margins
        assert not opened.page.get_by_text("bcnn train cub").is_visible()
        opened.page.emulate_media(media="print")
        assert opened.page.get_by_text("bcnn train cub").is_visible()
        assert opened.is_as_wide_as_the_window()
        assert opened.sticking_out(boxes="") == []
        assert opened.messages == []


def test_a_bad_page_is_seen_as_one(tmp_path):
    bad = '<div style="width: 3000px">wide</div><img src="data:image/png;base64,AAAA" alt="broken"><img src="gone.png">'
    (tmp_path / "bad.html").write_text(f"<!DOCTYPE html>{bad}<script>console.error('one'); throw Error('two')</script>")
    with open_page(tmp_path / "bad.html", 400) as opened:
        assert not opened.is_as_wide_as_the_window()
        assert [found[:4] for found in opened.sticking_out()] == ["<div"]
        assert opened.broken_images() == ["broken", ""]
        messages = " ".join(opened.messages)
        assert all(word in messages for word in ("error: one", "page error: two", "failed: file://"))


def test_without_a_browser_the_test_says_what_to_install(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("BCNN_REQUIRE_BROWSER", raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        browser_or_skip()
    monkeypatch.setenv("BCNN_REQUIRE_BROWSER", "1")
    with pytest.raises(pytest.fail.Exception, match="no browser to drive"):
        browser_or_skip()
