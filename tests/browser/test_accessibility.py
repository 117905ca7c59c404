"""Whoever does not see the page, uses no mouse or holds a phone: axe-core, and what stands where.

axe.min.js comes with the Python package axe-playwright-python (extra [test]); nothing of it goes into the page.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)
PHONE, TABLET, DESK = 390, 800, 1400
FOUND = """async () => {
  const {violations} = await axe.run();
  const where = (one) => one.nodes.map((node) => node.html.slice(0, 140)).join(' | ');
  return violations.map((one) => `${one.id} (${one.impact}): ${where(one)}`);
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    spec = importlib.util.find_spec("axe_playwright_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("axe-playwright-python is not installed (extra [test])")
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def page_at(chromium, page_file):
    contexts: list[Any] = []

    def opened(width: int, scheme: str = "light"):
        context = chromium.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(page_file.as_uri())
        page.wait_for_selector("body[data-drawn]", state="attached")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_axe_finds_nothing(page_at, axe, width, scheme):
    page = page_at(width, scheme)
    page.evaluate(axe)  # not as an element: the page's own policy stays as it is
    assert page.evaluate(FOUND) == []
    for summary in page.locator("summary").all():
        summary.click()
    page.select_option("#cells-state", "composed")
    page.click("#cells-body .expand >> nth=0")
    assert page.evaluate(FOUND) == []


def test_axe_would_find_something(page_at, axe):
    page = page_at(DESK)
    page.evaluate(axe)
    page.evaluate("document.getElementById('my-bandwidth').labels[0].remove()")
    assert any("label" in one for one in page.evaluate(FOUND))


@pytest.mark.parametrize("width", [PHONE, TABLET])
def test_the_answer_comes_before_the_filters(page_at, width):
    page = page_at(width)
    top = {name: page.locator(name).bounding_box()["y"] for name in ("#answer", ".filters", "#times-title")}
    assert top["#answer"] < top[".filters"] < top["#times-title"]
    assert page.locator("#answer .answer").bounding_box()["y"] < 844, "on the first screen"


def test_on_a_wide_screen_both_stand_side_by_side(page_at):
    page = page_at(DESK)
    filters, lead, results = (page.locator(name).bounding_box() for name in (".filters", ".lead", ".results"))
    assert filters["x"] + filters["width"] <= lead["x"] and abs(filters["y"] - lead["y"]) < 2
    assert results["x"] == lead["x"] and results["y"] >= lead["y"] + lead["height"]


@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_the_time_to_target_is_seen_without_scrolling_sideways(page_at, width):
    page = page_at(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    region = page.locator('[aria-label="table of cells"]').bounding_box()
    for cell in page.locator("#cells-body tr td:nth-child(3), #cells-head th:nth-child(3)").all():
        box = cell.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= region["x"] + region["width"] + 1
    assert page.text_content("#cells-head th:nth-child(3)") == "to target"


@pytest.mark.parametrize("width", [PHONE, TABLET, DESK])
def test_no_heading_breaks_in_a_word(page_at, width):
    """Each word of a heading, or of an arm's name, has one box: on one line. Names as long as a line set aside."""
    page = page_at(width)
    broken = """title => {
      document.querySelector('h1').textContent = title;
      return [...document.querySelectorAll('h1, h2, .ledger-name span, .chip span, .sort')].flatMap((node) => {
        const found = [];
        const walk = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
        for (let text = walk.nextNode(); text; text = walk.nextNode()) {
          if (text.data.includes('<')) continue;
          for (const match of text.data.matchAll(/[\\p{L}\\d]+/gu)) {
            const range = document.createRange();
            range.setStart(text, match.index);
            range.setEnd(text, match.index + match[0].length);
            if (range.getClientRects().length > 1) found.push(`${text.data}: ${match[0]}`);
          }
        }
        return found;
      });
    }"""
    assert page.evaluate(broken, "bandwidth-transformer of four offices") == []


def test_turning_pages_keeps_the_focus(page_at):
    page = page_at(DESK)
    page.check("#cells-everything")
    page.focus("#cells-next")
    for _ in range(5):
        page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "cells-next"
    assert page.get_attribute("#cells-next", "aria-disabled") == "true"
    last = page.text_content("#cells-count")
    page.keyboard.press("Enter")
    assert page.text_content("#cells-count") == last
