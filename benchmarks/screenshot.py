"""A picture of the top of a page, for README.md.

Run: python benchmarks/screenshot.py results/cub46/report.html docs/report.png     (needs chromium and playwright)
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

SIZE = {"width": 1200, "height": 900}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--section", help="scroll to this one, such as figure2_exponent")
    options = parser.parse_args()
    names = ("chromium", "chromium-browser", "google-chrome")
    browser = next((path for name in names if (path := shutil.which(name))), None)
    if browser is None:
        parser.error(f"expected one of {', '.join(names)} to be installed, found none.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport=SIZE)
        page.goto(options.page.resolve().as_uri())
        if options.section:
            page.evaluate("id => document.getElementById(id).scrollIntoView()", options.section)
        page.screenshot(path=options.picture)
        chromium.close()


if __name__ == "__main__":
    main()
