"""The pictures of docs/explain.md and docs/serve.md, with textures only.

Run: bcnn train textures --backbone alexnet --size 128 --preset improved_bcnn --out runs/textures
     python benchmarks/serve_screenshots.py runs/textures docs            (needs chromium, playwright and bcnn[serve])
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from bcnn.data.contract import TEST
from bcnn.data.spec import load_dataset
from bcnn.runs.explain import explain
from bcnn.runs.neighbours import Neighbours
from bcnn.runs.predict import open_run
from tests.browser import find_browser

SHOWN = ("test/brick/0000", "test/page/0001", "test/grass/0003")
WAIT_MS = 120_000  # of a busy machine


def make_explanation(run: Path, texture: Path, out: Path) -> None:
    recognizer = open_run(run)
    (done,) = explain(recognizer, [texture], texture.parent / "explained", neighbours=Neighbours(run, recognizer))
    Image.open(done.path).convert("P", palette=Image.Palette.ADAPTIVE).save(out, optimize=True)


def take(address: str, textures: list[Path], docs: Path, executable: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 1050})
        page.goto(address)
        page.wait_for_selector("body[data-ready]")
        page.set_input_files("#files", [str(path) for path in textures])
        expect(page.locator("#status")).to_contain_text("Done", timeout=WAIT_MS)
        page.get_by_role("button", name="Where did it look?").first.click()
        page.evaluate("scrollTo(0, 0)")
        page.wait_for_timeout(1000)
        page.screenshot(path=docs / "serve.png")
        page.emulate_media(color_scheme="dark")
        page.get_by_role("link", name="Mistakes").click()
        page.locator("#often button").first.click(timeout=WAIT_MS)
        page.locator("#shown button").first.click(timeout=WAIT_MS)
        expect(page.locator("#shown")).to_contain_text("Orange speaks", timeout=WAIT_MS)
        page.evaluate("scrollTo(0, 0)")
        page.set_viewport_size({"width": 1100, "height": 1100})
        page.wait_for_timeout(1000)
        page.screenshot(path=docs / "serve_mistakes.png")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("docs", type=Path)
    options = parser.parse_args()
    executable = find_browser() or parser.error("expected a chromium to be installed, found none.")
    samples = {sample.name: sample for sample in load_dataset("textures").of(TEST)}
    with tempfile.TemporaryDirectory() as folder:
        textures = [Path(folder) / f"{name.split('/')[1]}.png" for name in SHOWN]
        for name, path in zip(SHOWN, textures, strict=True):
            samples[name].open().save(path)
        make_explanation(options.run, textures[0], options.docs / "explain.png")
        command = [sys.executable, "-m", "bcnn", "serve", str(options.run), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                take(server.stdout.readline().split(" on ")[1].split(" ;")[0], textures, options.docs, executable)
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
