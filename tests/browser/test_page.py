"""The report page in a real browser, as a reader uses it: by mouse, by keyboard, in the light and in the dark."""

from __future__ import annotations

import pytest
from fixtures_pages import IMAGE_ARM, SCRIPT_ARM, SCRIPT_REASON

pytestmark = pytest.mark.timeout(600)


def bandwidth(opened, value: str) -> None:
    opened.drawn_after(lambda: opened.page.select_option("#bandwidth", label=value))


def test_it_opens_without_a_complaint_and_asks_for_nothing(opened):
    assert opened.page.title() == "<i>records</i> – bwbench"
    for selector in ("#times-chart .scatterlayer .trace", "#curves-chart .scatterlayer .trace", "#ledgers .bar"):
        assert opened.page.locator(selector).count() >= 5, selector
    bandwidth(opened, "1 Mbit/s")
    opened.page.click("#cells-body .expand >> nth=0")
    assert opened.complaints == []
    assert [url for url in opened.requests if not url.startswith(("file:", "data:"))] == []
    assert len([url for url in opened.requests if url.startswith("file:")]) == 1


def test_names_are_text_everywhere(opened):
    page = opened.page
    for arm in (SCRIPT_ARM, IMAGE_ARM):
        assert page.locator(f'#arms .chip:has-text("{arm}")').count() == 1
        assert page.locator(f'#numbers th:has-text("{arm}")').count() == 1
    page.check("#cells-everything")
    page.select_option("#cells-state", "not done")
    page.click('#cells-body tr:has-text("failed") .expand >> nth=0')
    assert SCRIPT_REASON in opened.text("#cells-body .details")
    hover = page.evaluate("pointsOf(chosenCells(), state.target).map(pointHover).join(' ')")
    assert "&lt;img src" in hover and "<img" not in hover and "<script" not in hover
    page.hover("#times-chart .nsewdrag")
    assert "&lt;" not in opened.text("#times-chart") and "<img src=x" in page.text_content("#times-chart .infolayer")
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


def test_filters_change_charts_and_table(opened):
    page = opened.page
    before = page.evaluate("tableCells().length")
    traces = page.evaluate("document.getElementById('curves-chart').data.length")
    opened.drawn_after(lambda: page.click('#arms .chip:has-text("ddp") input'))
    assert page.evaluate("tableCells().length") < before
    assert page.evaluate("document.getElementById('curves-chart').data.length") < traces
    assert "ddp" not in opened.text("#numbers")
    opened.drawn_after(lambda: page.click("#arms-none"))
    assert "No cell" in opened.text("#cells-count") and "No cell" in opened.text("#recommendation")
    opened.drawn_after(lambda: page.click("#arms-all"))
    assert page.evaluate("tableCells().length") == before
    bandwidth(opened, "100 Mbit/s")
    assert opened.text("#curves-title") == "Accuracy over time at 100 Mbit/s"
    page.fill("#cells-text", "ddp 10 ")
    assert page.evaluate("tableCells().every((cell) => armName(cell.arm) === 'ddp')")
    assert opened.complaints == []


def test_states_are_marked_and_can_be_chosen(opened):
    page = opened.page
    for mark in ("composed", "censored"):
        page.select_option("#cells-state", mark)
        rows = page.locator("#cells-body tr[data-cell]").count()
        assert rows and page.locator(f"#cells-body .mark.{mark}").count() == rows
        assert page.locator(f"#numbers .mark.{mark}").count() >= 1
    symbols = page.evaluate("document.getElementById('times-chart').data.map((trace) => trace.marker.symbol).flat()")
    assert "arrow-up" in symbols and any(symbol and symbol.endswith("-open") for symbol in symbols)


def test_sorting_and_details(opened):
    page = opened.page
    page.click('[data-sort="time"]')
    times = page.evaluate(
        "[...document.querySelectorAll('#cells-body tr')].map((row) => timeKey(report.cells[row.dataset.cell]))"
    )
    assert times == sorted(times)
    assert page.get_attribute('th:has([data-sort="time"])', "aria-sort") == "ascending"
    page.click('[data-sort="time"]')
    assert page.get_attribute('th:has([data-sort="time"])', "aria-sort") == "descending"
    page.fill("#cells-text", "ddp 10mbps")
    page.click("#cells-body tr[data-cell] >> nth=0")
    details = opened.text("#cells-body .details")
    for words in ("goodput", "waiting for the link", "Example CPU", "rank0", "relay", "done", "samples in"):
        assert words in details, words


def test_the_target_slider_computes_every_time_anew(opened):
    page = opened.page
    recorded = opened.text("#numbers")
    page.focus("#target")
    for _ in range(8):
        opened.drawn_after(lambda: page.keyboard.press("ArrowLeft"))
    assert float(page.input_value("#target-number")) < 95
    assert "95 %" not in opened.text("#times-title")
    assert opened.text("#numbers") != recorded
    assert page.get_attribute("#target", "aria-valuetext").endswith("%")
    page.fill("#target-number", "75")
    opened.drawn_after(lambda: page.press("#target-number", "Enter"))  # three evaluations lie behind it in most curves
    points = "pointsOf(chosenCells(), state.target).map((p) => [`${p.arm} ${p.bandwidth}`, p.estimate.value])"
    times = f"Object.fromEntries({points}.filter((point) => Number.isFinite(point[1])))"
    easier = page.evaluate(times)
    opened.drawn_after(lambda: page.click("#target-reset"))
    assert opened.text("#numbers") == recorded
    harder = page.evaluate(times)
    both = easier.keys() & harder.keys()
    assert len(both) > 5 and all(easier[place] <= 1.0001 * harder[place] for place in both)


def test_it_says_which_algorithm_and_how_it_knows(opened):
    page = opened.page

    def answer(mbps: float, latency_ms: float) -> str:
        page.fill("#my-latency", str(latency_ms))
        opened.drawn_after(lambda: page.fill("#my-bandwidth", str(mbps)))
        return opened.text("#recommendation")

    assert "Measured at 10 Mbit/s" in answer(10, 2.5)
    between = answer(31.6, 2.5)
    assert "Interpolated between 10 Mbit/s and 100 Mbit/s" in between and "n = " in between
    assert "the nearest to your 80 ms" in answer(20, 40)
    outside = answer(5000, 2.5)
    assert "Outside of what was measured (1 Mbit/s to 100 Mbit/s)" in outside
    points = "const points = pointsOf(chosenCells(), state.target).filter((p) => armName(p.arm) === 'threshold')"
    row = page.evaluate(f"(() => {{ {points}; return between(points, 31.6e6); }})()")
    ends = page.evaluate(f"(() => {{ {points}; return points.slice(-2).map((p) => p.estimate.value); }})()")
    assert min(ends) < row["value"] < max(ends) and row["low"] < row["value"] < row["high"]
    assert "above 0" in answer(0, 2.5)


def test_everything_is_reached_by_keyboard(opened):
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    seen = []
    for _ in range(60):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.className"
            )
        )
    for control in (
        "theme",
        "bandwidth",
        "target",
        "target-number",
        "arms-all",
        "my-bandwidth",
        "my-unit",
        "my-latency",
        "log-time",
        "cells-text",
        "cells-state",
        "expand",
    ):
        assert control in seen, (control, seen)
    page.focus("#cells-body .expand")
    page.keyboard.press("Enter")
    assert page.get_attribute("#cells-body .expand", "aria-expanded") == "true"
    page.keyboard.press("Enter")
    assert page.locator("#cells-body .details").count() == 0
    page.focus("#arms input")
    opened.drawn_after(lambda: page.keyboard.press("Space"))
    assert not page.is_checked("#arms input >> nth=0")


def test_every_control_has_a_name(opened):
    unnamed = opened.page.evaluate(
        """[...document.querySelectorAll('input, select, button, summary, [role=img], [role=region], table button')]
        .filter((node) => ![...(node.labels || [])].some((label) => label.textContent.trim())
          && !node.getAttribute('aria-label') && !node.getAttribute('aria-labelledby') && !node.textContent.trim())
        .map((node) => node.outerHTML.slice(0, 120))"""
    )
    assert unnamed == []
    assert opened.page.get_attribute("html", "lang") == "en"
    assert "Fastest at" in opened.page.text_content("#announce")


def test_light_and_dark(opened, tmp_path):
    page, ground = opened.page, "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    pictures = [page.screenshot(path=tmp_path / "light.png")]
    opened.drawn_after(lambda: page.emulate_media(color_scheme="dark"))
    dark = page.evaluate(ground)
    assert dark != light
    pictures.append(page.screenshot(path=tmp_path / "dark.png"))
    opened.drawn_after(lambda: page.check("input[name=theme][value=light]", force=True))
    assert page.evaluate(ground) == light
    single = page.evaluate("armColor(report.arms.findIndex((arm) => arm.name === 'single'))")
    opened.drawn_after(lambda: page.check("input[name=theme][value=dark]", force=True))
    assert page.evaluate(ground) == dark
    assert page.evaluate("armColor(report.arms.findIndex((arm) => arm.name === 'single'))") != single == "#000000"
    assert pictures[0] != pictures[1] and all(len(picture) > 20_000 for picture in pictures)


def test_a_phone_needs_no_sideways_scrolling(chromium, page_file):
    context = chromium.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(page_file.as_uri())
    page.wait_for_selector("body[data-drawn]", state="attached")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    context.close()
