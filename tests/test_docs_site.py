"""The built site: every guide and every public name is on it, and it asks no other host for anything."""

import re
from pathlib import Path

import pytest

import bcnn

from .browser import open_page

ROOT = Path(__file__).parent.parent
SITE = ROOT / "build" / "docs"
pytestmark = pytest.mark.docs

# What a browser fetches by itself; links that a reader may follow are others.
FETCHED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"([^\"]+)\"|<link\b[^>]*\bhref=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    assert SITE.is_dir(), "make docs builds the site"
    found = (path.relative_to(SITE) for path in SITE.rglob("*.html"))
    return {str(path): (SITE / path).read_text() for path in found if path.parts[0] != "_downloads"}  # files to keep


def test_every_guide_is_a_page_that_the_first_one_leads_to(pages):
    guides = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert {"tutorial", "training", "pooling"} <= guides
    for guide in guides:
        assert f'href="{guide}.html"' in pages["index.html"], guide


def test_every_public_name_is_in_the_reference(pages):
    public = pages["reference/api/public.html"]
    for name in set(bcnn.__all__) - {"__version__"}:
        assert f'id="bcnn.{name}"' in public, name


def test_every_example_is_shown(pages):
    (shown,) = [page for name, page in pages.items() if name == "reference/examples.html"]
    for script in (ROOT / "examples").glob("*.py"):
        assert f"examples/{script.name}" in re.sub("<[^>]*>", "", shown), script.name


def test_pages_are_whole_without_other_hosts(pages):
    for name, text in pages.items():
        fetched = [target for pair in FETCHED.findall(text) for target in pair if target]
        assert fetched, name
        assert not [target for target in fetched if re.match(r"(https?:)?//", target)], name


def test_pictures_exist(pages):
    for name, text in pages.items():
        for source in re.findall(r'<img\b[^>]*\bsrc="([^"]+)"', text):
            assert (SITE / name).parent.joinpath(source).resolve().is_file(), f"{name}: {source}"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_formulas_are_drawn_by_a_browser_without_a_network(width, dark):
    with open_page(SITE / "reference" / "api" / "public.html", width, dark=dark) as opened:
        opened.page.context.set_offline(True)
        opened.page.wait_for_selector("mjx-container", timeout=60_000)
        assert opened.page.locator("mjx-container").count() > 5
        assert opened.page.locator("mjx-merror").count() == 0
        assert not opened.messages
        assert opened.is_as_wide_as_the_window()
