"""A page in a real browser: what it complains of, what sticks out of it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")

# Boxes that scroll may hold what is wider than the page; all else ends where the page ends, half a pixel for rounding.
_STICKING_OUT = """boxes => {
    const right = document.documentElement.clientWidth + 0.5;
    const free = [...document.querySelectorAll("body, body *")].filter(e => !boxes || !e.parentElement.closest(boxes));
    return free.filter(e => e.getBoundingClientRect().right > right).map(e => e.outerHTML.slice(0, 80));
}"""


@dataclass
class Opened:
    """A page, and all that went wrong while it was opened and used."""

    page: Any
    messages: list[str] = field(default_factory=list)

    def watch(self) -> None:
        """Collects errors and warnings of the console, of scripts, and of requests."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.messages.append(f"page error: {error}"))
        self.page.on("requestfailed", lambda request: self.messages.append(f"failed: {request.url[:80]}"))

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.messages.append(f"{message.type}: {message.text}")

    def is_as_wide_as_the_window(self) -> bool:
        """The page itself does not scroll sideways."""
        return self.page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

    def sticking_out(self, *, boxes: str = ".scroll") -> list[str]:
        """The beginning of every element, outside of the boxes, that ends to the right of the page; "" for no boxes."""
        return self.page.evaluate(_STICKING_OUT, boxes)

    def broken_images(self) -> list[str]:
        """What images that could not be drawn were to show."""
        return self.page.evaluate("[...document.images].filter(i => !(i.naturalWidth > 0)).map(i => i.alt)")


def find_browser() -> str | None:
    """The path of a Chromium or Chrome, if one is installed."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def browser_or_skip() -> str:
    """The path of a browser; without one the test is skipped, or fails where BCNN_REQUIRE_BROWSER is 1."""
    path = find_browser()
    if path and find_spec("playwright"):
        return path
    lacking = (
        "pip install playwright" if path else f"install one of {', '.join(NAMES)} (Debian: apt-get install chromium)"
    )
    reason = f"no browser to drive; {lacking}"
    if os.environ.get("BCNN_REQUIRE_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def open_page(path: Path, width: int, *, height: int = 900, dark: bool = False) -> Iterator[Opened]:
    """The file in a window so many pixels wide."""
    executable = browser_or_skip()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        try:
            scheme = "dark" if dark else "light"
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
            opened = Opened(page)
            opened.watch()
            page.goto(path.resolve().as_uri(), wait_until="load")
            yield opened
        finally:
            browser.close()
