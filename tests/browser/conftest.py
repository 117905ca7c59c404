"""A real Chromium, of the system: Debian's package, or what BWBENCH_CHROMIUM names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from fixtures_pages import write_page_study

from bwbench.results.page.payload import build_payload
from bwbench.results.page.render import render_page

NAMES = ("chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="module")
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (extra [test])")
    path = os.environ.get("BWBENCH_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"no Chromium: none of {', '.join(NAMES)} is in PATH, and BWBENCH_CHROMIUM is not set")
    with playwright.sync_playwright() as driver:
        # Namespaces of its own are refused to root and in containers; the page is ours, and asks no network.
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=180_000)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def cells(tmp_path_factory):
    return write_page_study(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="session")
def page_file(cells, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_page(build_payload(cells, "<i>records</i>")), encoding="utf-8")
    return path


class Opened:
    """The page in a tab, with all that the browser complained of and asked for."""

    def __init__(self, page, url: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.set_default_timeout(120_000)
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)
        page.wait_for_selector("body[data-drawn]", state="attached")

    def drawn_after(self, action) -> None:
        """Do something, and wait until the page has drawn its consequences: nothing is left for the next frame."""
        before = self.page.evaluate("Number(document.body.dataset.drawn)")
        action()
        # A frame that an earlier action asked for may be drawn in between: one more than before is not enough.
        settled = "before => pending === null && Number(document.body.dataset.drawn) > before"
        self.page.wait_for_function(settled, arg=before)

    def text(self, selector: str) -> str:
        """All text, that of closed details too."""
        return self.page.text_content(selector) or ""


@pytest.fixture
def opened(chromium, page_file):
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield Opened(context.new_page(), page_file.as_uri())
    context.close()
