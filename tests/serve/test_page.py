"""The page in a real browser: upload, overlay, classes, matrix, keyboard, phone width, dark mode; and it is quiet."""

import csv
import io
import threading
import time
from contextlib import contextmanager

import pytest

pytest.importorskip("fastapi")
import uvicorn

from bcnn.serve.app import make_app
from bcnn.serve.run import listen
from tests.browser import Opened, browser_or_skip
from tests.serve.runs import images_of, library_of, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("p"))


@pytest.fixture(scope="module")
def address(run):
    browser_or_skip()
    socket = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(make_app(library_of(run)), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    server.should_exit = True
    thread.join(timeout=20)


@contextmanager
def opened(address, *, width=1200, dark=False, page=""):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_or_skip(), args=["--no-sandbox"])
        try:
            own = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
            own.set_default_timeout(60000)  # of a busy machine
            found = Opened(own)
            found.watch()
            hosts = set()
            own.on("request", lambda request: hosts.add(request.url.split("/")[2]) if "//" in request.url else None)
            own.goto(f"{address}/{page}")
            own.wait_for_selector("body[data-ready]")
            yield found
            assert found.messages == []
            assert hosts <= {address.removeprefix("http://")}  # nothing comes from elsewhere
        finally:
            browser.close()


def until(page, expression):
    """Wait for it as `wait_for_function` would, which the page's own policy forbids."""
    end = time.monotonic() + 60
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        time.sleep(0.05)


def upload(page, paths):
    page.set_input_files("#files", [str(path) for path in paths])
    until(page, f"document.querySelectorAll('.result').length === {len(paths)}")
    until(page, "document.getElementById('status').textContent.startsWith('Done')")


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1200])
def test_photographs_are_recognized(address, run, width, tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    with opened(address, width=width) as found:
        page = found.page
        upload(page, [*images_of(run)[:5], broken])
        assert page.locator(".result .error").count() == 1
        assert page.locator("#status").inner_text() == "Done: 5 photographs recognized. 1 file could not be read."
        assert page.locator(".result .bar").count() == 5 * 3
        card = page.locator(".result", has=page.locator(".bar")).first
        shares = card.locator(".guess span:nth-child(2)").all_inner_texts()
        assert sum(float(text.removeprefix("< ").removesuffix(" %")) for text in shares) == pytest.approx(100, abs=0.3)
        widths = card.locator(".bar div").evaluate_all("bars => bars.map(b => b.getBoundingClientRect().width)")
        assert widths == sorted(widths, reverse=True)
        button = card.get_by_role("button", name="Where did it look?")
        button.click()
        image = card.locator("figure img").first
        assert image.get_attribute("src").startswith("data:image/jpeg")
        assert "in orange" in image.get_attribute("alt")
        assert card.locator(".photos img").count() == 6
        until(page, "[...document.images].every(i => i.complete || i.loading === 'lazy')")
        assert found.is_as_wide_as_the_window()
        assert found.sticking_out() == []
        with page.expect_download() as started:
            page.get_by_role("button", name="Download as CSV").click()
        rows = list(csv.DictReader(io.StringIO(started.value.path().read_text())))
        assert len(rows) == 6
        assert sum(bool(row["error"]) for row in rows) == 1
        page.get_by_role("button", name="Clear").click()
        assert page.locator(".result").count() == 0


@pytest.mark.slow
def test_a_photograph_can_be_pasted_or_dropped(address):
    give = """async kind => {
        const canvas = Object.assign(document.createElement("canvas"), {width: 50, height: 40});
        const blob = await new Promise(done => canvas.toBlob(done));
        const given = new DataTransfer();
        given.items.add(new File([blob], `${kind}.png`, {type: "image/png"}));
        document.dispatchEvent(kind === "paste" ? new ClipboardEvent("paste", {clipboardData: given}) :
            new DragEvent("drop", {dataTransfer: given}));
    }"""
    with opened(address) as found:
        for count, kind in enumerate(("paste", "drop"), 1):
            found.page.evaluate(give, kind)
            until(found.page, f"document.querySelectorAll('.result').length === {count}")
            assert found.page.locator(".result h3").first.inner_text() == f"{kind}.png"


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 1200])
def test_classes_and_mistakes(address, width):
    with opened(address, width=width, page="#classes") as found:
        page = found.page
        page.wait_for_selector("#class-list li")
        assert page.locator("#class-list li").count() == 3
        page.locator("#class-list img").first.scroll_into_view_if_needed()
        until(page, "document.querySelector('#class-list img').naturalWidth > 0")
        page.fill("#find", "CLASS_2")
        assert page.locator("#class-list h4").all_inner_texts() == ["class_2"]
        assert found.is_as_wide_as_the_window()
        page.get_by_role("link", name="Mistakes").click()
        until(page, "document.getElementById('matrix').style.width !== ''")
        page.locator("#matrix").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowLeft")
        page.keyboard.press("ArrowLeft")  # at the edge already
        assert page.locator("#cell").inner_text().startswith("class_0")
        page.keyboard.press("Enter")
        page.wait_for_selector("#shown li")
        page.get_by_role("button", name="Why class_0?").first.click()
        page.wait_for_selector("text=Orange speaks for class_0")
        assert page.locator("#shown img").first.get_attribute("src").startswith("data:image/jpeg")
        assert found.is_as_wide_as_the_window()
        assert found.sticking_out() == []


@pytest.mark.slow
def test_keyboard_alone_and_both_schemes(address):
    with opened(address, dark=True) as found:
        page = found.page
        light = "Math.max(...getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number))"
        assert page.evaluate(light) < 64
        names = []
        for _ in range(8):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert names[:5] == ["Skip to the content", "Recognize", "Classes", "Mistakes", "API"]
        assert "choose photographs" in names
        page.locator("#scheme").focus()
        page.keyboard.press("Enter")
        assert page.evaluate(light) > 192
        with page.expect_file_chooser():
            page.locator("#choose").focus()
            page.keyboard.press("Enter")


def test_the_page_of_the_api(address):
    with opened(address, width=360, page="api.html") as found:
        assert "POST /predict" in found.page.locator("#paths h2").first.inner_text()
        assert "/predict?top=3" in found.page.locator("#curl").inner_text()
        assert found.is_as_wide_as_the_window()
        assert found.sticking_out(boxes=".scroll, pre") == []


@pytest.mark.slow
def test_the_link_to_the_content_stays_on_its_page(address):
    with opened(address, page="#mistakes") as found:
        found.page.locator(".skip").focus()
        found.page.keyboard.press("Enter")
        until(found.page, "location.hash === '#main'")
        assert found.page.locator("#mistakes").is_visible()
        assert not found.page.locator("#recognize").is_visible()


@pytest.mark.slow
def test_files_that_are_no_images_are_named(address, run, tmp_path):
    note = tmp_path / "note.txt"
    note.write_text("no image")
    with opened(address) as found:
        found.page.set_input_files("#files", [str(images_of(run)[0]), str(note)])
        until(found.page, "document.getElementById('status').textContent.startsWith('Done')")
        said = found.page.locator("#status").inner_text()
        assert said == "Done: 1 photograph recognized. 1 file was not an image and was left out."


@pytest.mark.slow
def test_a_server_that_is_gone_is_said_where_the_user_looks(address):
    with opened(address, page="#mistakes") as found:
        page = found.page
        until(page, "document.getElementById('matrix').style.width !== ''")
        page.locator("#matrix").focus()
        page.route("**/api/confusion/*/*", lambda route: route.abort())
        page.keyboard.press("Enter")
        until(page, "document.getElementById('cell').textContent.startsWith('The server does not answer')")
        assert page.locator("#cell").is_visible()
        found.messages.clear()  # of the request that was cut off


@pytest.mark.slow
def test_keys_before_the_matrix_is_there_do_no_harm(address):
    with opened(address) as found:
        page = found.page
        held = []
        page.route("**/api/confusion", lambda route: held.append(route))
        page.get_by_role("link", name="Mistakes").click()
        page.locator("#matrix").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.locator("#matrix").click()
        held[0].continue_()
        until(page, "document.getElementById('matrix').style.width !== ''")
