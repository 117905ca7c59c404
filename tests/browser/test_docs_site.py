"""The documentation as a site: built as `make docs` builds it, whole, searchable, and without a word to the outside."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

pytest.importorskip("mkdocs", reason="the site is not to be built here: extra [docs]")
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
OUTSIDE = re.compile(r"(?:[a-z]+:)?//")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


class Page(HTMLParser):
    """What a page leads to, what it loads, and the places in it."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.leads: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.places.add(given["id"])
        if tag == "a" and "href" in given:
            self.leads.append(given["href"])
        elif tag in ("script", "img", "iframe") and "src" in given:
            self.loads.append(given["src"])
        elif tag == "link" and given.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(given["href"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {file: Page(file) for file in site.rglob("*.html")}


def test_every_page_of_the_docs_is_in_it(site: Path) -> None:
    expected = {page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")}
    named = {path.with_name("index.html") if path.name == "README.html" else path for path in expected}
    assert {path for path in named if not (site / path).is_file()} == set()
    assert len(named) > 60


def test_no_link_is_broken(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for file, page in pages.items():
        if file.name == "404.html":
            continue  # its links begin at the root of a server
        for target in [*page.leads, *page.loads]:
            if re.match(r"[a-z]+:", target):
                continue
            path, _, place = unquote(target).partition("#")
            there = (file.parent / path).resolve() if path else file
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (place and there in pages and place not in pages[there].places):
                broken.append(f"{file.relative_to(site)}: {target}")
    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    assert [load for page in pages.values() for load in page.loads if OUTSIDE.match(load)] == []
    styles = [style.read_text(encoding="utf-8") for style in site.rglob("*.css")]
    assert [url for style in styles for url in re.findall(r"url\(['\"]?(https?:[^)]*)", style)] == []


def test_search_knows_words_options_and_messages(site: Path) -> None:
    entries = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]

    def found(words: str) -> set[str]:
        return {
            entry["location"].partition("#")[0] for entry in entries if words in f"{entry['title']} {entry['text']}"
        }

    assert "statistics.html" in found("rossover") and len(found("rossover")) >= 5
    assert "commands.html" in found("--cells-per-machine")
    assert "troubleshooting.html" in found("is there twice; 'workers: 2' starts two ranks on one host")
    assert "api.html" in found("distribute")


def test_names_of_the_library_are_told(site: Path) -> None:
    import bwbench

    text = (site / "api.html").read_text(encoding="utf-8")
    assert "<!-- api" not in text
    for name in set(bwbench.__all__) - {"__version__"}:
        assert f'id="bwbench.{name}"' in text or f'.{name}"' in text, name


def blocks_of(html: str) -> list[str]:
    """Blocks in their order: headings, list items, tables, code, pictures."""
    html = re.sub(r"<a class=\"headerlink\".*?</a>", "", html, flags=re.S)
    return re.findall(r"<(h[1-6]|li|tr|pre|img)\b", html)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_reads_the_same_in_the_repository(page: Path) -> None:
    """Python-Markdown, of the site, and CommonMark, of hosts of repositories, differ in lists of more than lines."""
    import markdown
    from markdown_it import MarkdownIt

    text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
    extensions = ["tables", "attr_list", "md_in_html", "pymdownx.superfences"]
    ours = blocks_of(re.sub(r"<table class=\"highlighttable\">", "", markdown.markdown(text, extensions=extensions)))
    theirs = blocks_of(MarkdownIt("commonmark").enable("table").render(text))
    assert ours == theirs


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def test_a_reader_finds_a_word_and_nothing_is_asked_of_others(site: Path, chromium) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        context = chromium.new_context(viewport={"width": 390, "height": 844})
        page, asked, complaints = context.new_page(), list[str](), list[str]()
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        here = f"http://127.0.0.1:{server.server_port}/"
        page.goto(f"{here}index.html")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "wider than a phone"
        page.click("label.md-header__button[for=__search]")
        page.locator("input.md-search__input").press_sequentially("crossover")  # it listens to keys
        page.wait_for_selector(".md-search-result__item a")
        assert any(
            "statistics.html" in link.get_attribute("href")
            for link in page.query_selector_all(".md-search-result__item a")
        )
        assert [url for url in asked if not url.startswith((here, "blob:", "data:"))] == []
        assert complaints == []
        context.close()
    finally:
        server.shutdown()
        server.server_close()
