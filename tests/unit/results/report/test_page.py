"""The page without a browser: what is in its payload, that text stays text, and that it stays small."""

from __future__ import annotations

import json
import re

import pytest
from fixtures_pages import ARMS, IMAGE_ARM, SCRIPT_ARM, SCRIPT_REASON, write_page_study
from fixtures_records import Study, role_of_preset, write_study

from bwbench.base.errors import ConfigError
from bwbench.cli.result_commands import ReportFormat, report
from bwbench.methods.roles import needs_no_link
from bwbench.records import iter_cells
from bwbench.records.schema import PARTS
from bwbench.results.analysis.cells import cell_row
from bwbench.results.figures.style import arm_style
from bwbench.results.page.payload import (
    CONTRAST,
    DARK_BACKGROUND,
    Pool,
    arm_look,
    build_payload,
    contrast,
    on_dark,
    rounded,
)
from bwbench.results.page.render import json_for_script, plotly_js, render_page

LIMIT_BYTES = 10_000_000
KNOWN_ARMS = ("single", "no-communication", "ddp", "ring", "ring-fp16", "threshold", "qadam", "diloco", "powersgd", "x")


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    return write_page_study(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def payload(cells):
    return build_payload(cells, "</title><script>window.hacked=4</script>")


@pytest.fixture(scope="module")
def html(payload):
    return render_page(payload)


def objects(payload):
    return [dict(zip(payload["columns"], row, strict=True)) for row in payload["cells"]]


def test_every_cell_is_there_with_what_its_records_say(cells, payload):
    found = {cell["slug"] + cell["id"]: cell for cell in objects(payload)}
    assert len(found) == len(cells)
    for folder in cells:
        row = cell_row(folder)
        cell = found[row["slug"] + row["id"]]
        for name in ("status", "seed", "bandwidth_bps", "rtt_s", "time_to_target_s", "censored_at_s", "timing_share"):
            assert cell[name] == row[name], name
        assert payload["arms"][cell["arm"]]["name"] == row["arm"]
        assert bool(cell["composed"]) == row["composed"]
        assert bool(cell["needs_no_link"]) == needs_no_link(row["role"], shaped=row["bandwidth_bps"] is not None)
        if row["status"] == "done":
            curve = payload["pools"]["values"][cell["values"]]
            assert len(curve) == len(payload["pools"]["clocks"][cell["clocks"]]) >= 1
            assert len(cell["ledger"]["mean_s"]) == len(PARTS)
            assert sum(cell["ledger"]["mean_s"]) == pytest.approx(cell["ledger"]["step_s"], rel=0.01)
            assert "rank0" in payload["pools"]["log"][cell["log"]] or row["composed"]
    assert any(cell["composed"] for cell in found.values())
    assert any(cell["censored_at_s"] for cell in found.values())
    assert {cell["status"] for cell in found.values()} == {"done", "failed", "missing"}


def test_links_say_what_was_asked_and_achieved(payload):
    links = [
        payload["pools"]["link_facts"][cell["link_facts"]]
        for cell in objects(payload)
        if cell["bandwidth_bps"] == 1e7 and cell["link_facts"] is not None
    ]
    assert links and all(link["achieved_goodput_bps"] / link["asked_goodput_bps"] > 0.99 for link in links)
    assert all(link["verdicts"] == ["ok", "ok"] and link["backend"] == "relay" for link in links)


def test_cells_that_differ_in_latency_alone_are_one_group(tmp_path):
    for latency in ("1 ms", "50 ms"):
        write_study(
            tmp_path,
            Study("far", arms=("ddp", "single"), repeats=1, latency=latency, samples_scale=800.0, medium="switched"),
        )
    write_study(tmp_path, Study("air", arms=("ddp",), repeats=1, samples_scale=800.0))
    groups = build_payload(list(iter_cells(tmp_path)), "x")["groups"]
    assert [(group["experiment"], len(group["cells"])) for group in groups] == [(0, 1), (1, 3)]
    assert [group["target"] for group in groups] == [0.95, 0.95]


def test_an_arm_has_its_label_beside_its_recorded_name(tmp_path):
    arms = ("ring-int8", "ddp", "single")
    write_study(tmp_path, Study("short", arms=arms, bandwidths_mbps=(1.0, 1000.0), medium="switched"))
    payload = build_payload(list(iter_cells(tmp_path)), "x")
    names = {arm["name"]: arm["label"] for arm in payload["arms"]}
    assert names == {"ddp": "ddp", "ring-int8": "int8", "single": "single"}
    (group,) = payload["groups"]
    assert group["one_node"] and not any("ring-int8" in one["words"] for one in group["one_node"])


def test_equal_records_make_equal_pages(cells, html):
    again = build_payload(list(reversed(cells)), "</title><script>window.hacked=4</script>")
    assert render_page(again) == html


def test_names_cannot_leave_their_place(html):
    own = html.replace(plotly_js(), "")
    scripts = re.findall(r"<script[^>]*>", own)
    assert len(scripts) == 3 == own.count("</script>")
    assert "<script>window.hacked" not in html and "<img src=x" not in html and "<b onmouseover" not in html
    content = re.search(r'id="payload">(.*?)</script>', html, re.DOTALL)
    assert content is not None
    read = json.loads(content[1])
    assert {SCRIPT_ARM, IMAGE_ARM} <= {arm["name"] for arm in read["arms"]}
    assert any(SCRIPT_REASON in str(row) for row in read["cells"])


def test_nothing_is_loaded_from_anywhere(html):
    own = html.replace(plotly_js(), "")
    assert "default-src 'none'" in own
    assert not re.search(r"<(?:script|img|iframe|link|source)[^>]+(?:src|href)=[\"']?(?:https?:)?//", own)
    assert not re.search(r"url\(\s*[\"']?(?:https?:)?//|@import", own.split("</style>")[0])
    assert "MIT License" in html and "Plotly" in html


@pytest.mark.parametrize("text", ["</script>", "<!--", "a & b", "\u2028", '"', "\\", "😀"])
def test_json_inside_a_script_reads_back(text):
    written = json_for_script({text: [text]})
    assert json.loads(written) == {text: [text]}
    assert not re.search("[<>&\u2028\u2029]", written)


def test_numbers_that_json_lacks_are_refused():
    with pytest.raises(ValueError):
        json_for_script({"x": float("inf")})
    assert rounded(float("inf")) is None and rounded(float("nan")) is None and rounded(None) is None


def test_rounding_keeps_what_decides():
    assert rounded(0.8512341, 6) == 0.851234 and rounded(12.0) == 12 and rounded(0.0) == 0
    assert rounded(123456.789) == 123460


def test_a_pool_keeps_each_value_once():
    pool = Pool()
    assert [pool.add(value) for value in ([1, 2], [3], [1, 2], None)] == [0, 1, 0, None]
    assert pool.values == [[1, 2], [3]]


def test_a_thousand_cells_are_small(payload, html):
    """Even if no two cells shared a curve. A hundred evaluations a cell, where these have fewer."""
    a_cell = len(json_for_script(payload["cells"])) / len(payload["cells"])
    shared = sum(len(json_for_script(payload["pools"][name])) for name in ("environment", "link_facts", "log"))
    a_point = len("0.851234,") + len("12345.6,") + len("128000,")
    page = len(html.encode()) - len(json_for_script(payload))
    assert page + 1000 * (a_cell + shared / len(payload["cells"]) + 100 * a_point) < LIMIT_BYTES


@pytest.mark.parametrize("arm", KNOWN_ARMS)
def test_an_arm_keeps_its_colour_and_stays_visible_in_the_dark(arm):
    look = arm_look(arm, role_of_preset(arm))
    assert look["light"] == arm_style(arm, role_of_preset(arm)).color
    assert contrast(look["dark"], DARK_BACKGROUND) >= CONTRAST
    assert look["dash"] == "solid" or re.fullmatch(r"(\d+(\.\d+)?px,)+\d+(\.\d+)?px", look["dash"])


def test_colours_that_are_light_enough_stay():
    assert on_dark("#e69f00") == "#e69f00"
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_arms_of_the_study_differ(payload):
    looks = {(arm["light"], arm["symbol"], arm["dash"]) for arm in payload["arms"]}
    assert len(looks) == len(payload["arms"]) == len(ARMS)


def test_the_command_writes_the_page_beside_the_records(tmp_path, capsys):
    write_study(tmp_path / "results", Study("wifi", arms=("ring",), repeats=1, samples_scale=600.0))
    assert report(tmp_path / "results") == 0
    written = tmp_path / "results" / "report.html"
    assert capsys.readouterr().out.strip() == str(written)
    assert written.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in (tmp_path / "results").iterdir() if path.is_file()] == ["report.html"]
    assert report(tmp_path / "results" / "wifi", out=tmp_path / "new" / "page.html") == 0
    assert (tmp_path / "new" / "page.html").is_file()


def test_the_command_writes_a_section(tmp_path):
    write_study(tmp_path / "results", Study("wifi", arms=("ring", "single"), repeats=2, samples_scale=600.0))
    assert report(tmp_path / "results", format=ReportFormat.markdown) == 0
    assert report(tmp_path / "results", format=ReportFormat.latex) == 0
    assert "ring" in (tmp_path / "results" / "report.md").read_text(encoding="utf-8")
    assert "\\" in (tmp_path / "results" / "report.tex").read_text(encoding="utf-8")


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ConfigError, match="no records"):
        report(tmp_path)
    write_study(tmp_path, Study("wifi", arms=("ring",), repeats=1, samples_scale=600.0))
    with pytest.raises(ConfigError, match="is a folder"):
        report(tmp_path, out=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        report(tmp_path, out=tmp_path / "file" / "page.html")
