"""Which arm is fastest on a link that nobody measured: by hand-made points whose answer is known."""

from __future__ import annotations

from typing import Any

import pytest
from fixtures_records import Study, write_study
from pytest import approx

from bwbench.records import iter_cells
from bwbench.results.analysis.answer import answer_phrase, answers
from bwbench.results.analysis.arm_labels import arm_labels
from bwbench.results.page.payload import build_payload
from bwbench.results.page.render import render_page, scripts
from bwbench.results.text import plain, significant

pytestmark = pytest.mark.timeout(600)
SCRIPTS = ("words.js", "student.js", "statistics.js", "isotonic.js", "arrivals.js", "recommend.js", "answer.js")


@pytest.fixture(scope="module")
def javascript(chromium):
    context = chromium.new_context()
    page = context.new_page()
    page.add_script_tag(content=scripts(SCRIPTS))
    yield page
    context.close()


def cell(arm: int, mbps: float | None, seed: int, time_s: float | None, role: str = "method") -> dict[str, Any]:
    return {
        "arm": arm, "role": role, "bandwidth_bps": mbps and mbps * 1e6, "seed": seed, "status": "done",
        "composed": 0, "timing_share": 0, "target_value": 0.9, "time_to_target_s": time_s,
        "censored_at_s": 50.0 if time_s is None else None, "samples_to_target": 1000,
        "evaluate_every_samples": None, "global_batch": 32,
    }  # fmt: skip


def ranked(page, cells: list[dict[str, Any]], mbps: float) -> dict[str, Any]:
    script = """([cells, bandwidth]) => {
      const found = ranking(pointsOf(cells, 0.9), bandwidth);
      const rows = found.rows.map((row) => ({arm: row.arm, value: row.value, low: row.low, high: row.high,
        atLeast: row.atLeast, outside: row.outside, ratio: row.ratio, verdict: verdict(row)}));
      return {rows, missing: found.missing};
    }"""
    return page.evaluate(script, [cells, mbps * 1e6])


def linked(arm: int, bits: float, bandwidths: tuple[float, ...], noise: float = 0.05) -> list[dict[str, Any]]:
    """Three seeds of an arm that is bound by its link alone: its time is bits over rate, a line in the logarithms."""
    return [
        cell(arm, mbps, seed, bits / mbps * (1 + noise * (seed - 1) * (-1) ** arm))
        for mbps in bandwidths
        for seed in range(3)
    ]


def test_a_power_of_the_bandwidth_is_met_exactly(javascript):
    cells = linked(0, 100.0, (1.0, 10.0, 100.0), noise=0.0) + linked(1, 300.0, (1.0, 10.0, 100.0), noise=0.0)
    for mbps in (1.0, 2.0, 9.99, 31.6, 100.0):
        found = ranked(javascript, cells, mbps)
        assert [row["arm"] for row in found["rows"]] == [0, 1]
        assert found["rows"][0]["value"] == approx(100.0 / mbps, rel=1e-3)
        assert found["rows"][1]["ratio"]["value"] == approx(3.0) and found["rows"][1]["verdict"] == "slower"


def test_arms_within_the_interval_tie(javascript):
    cells = linked(0, 100.0, (1.0, 10.0)) + linked(1, 101.0, (1.0, 10.0)) + linked(2, 400.0, (1.0, 10.0))
    verdicts = {row["arm"]: row["verdict"] for row in ranked(javascript, cells, 3.0)["rows"][1:]}
    assert verdicts == {1: "tie", 2: "slower"}


def test_nothing_is_extrapolated(javascript):
    cells = linked(0, 100.0, (1.0, 10.0)) + linked(1, 150.0, (1.0, 10.0))
    for mbps, at in ((0.1, 100.0), (1000.0, 10.0)):
        rows = ranked(javascript, cells, mbps)["rows"]
        assert rows[0]["value"] == approx(at, rel=0.01) and rows[0]["outside"]


def test_an_arm_measured_on_faster_links_alone_is_not_compared(javascript):
    cells = linked(0, 100.0, (1.0, 10.0)) + linked(1, 100.0, (100.0, 1000.0))
    found = ranked(javascript, cells, 3.0)
    assert [row["arm"] for row in found["rows"]] == [0] and found["missing"] == [1]
    found = ranked(javascript, cells, 500.0)
    assert [row["arm"] for row in found["rows"]] == [1] and found["missing"] == [0]
    found = ranked(javascript, cells, 5000.0)  # outside of both: the nearest alone
    assert [row["arm"] for row in found["rows"]] == [1] and found["missing"] == [0]


def test_a_censored_neighbour_leaves_a_bound(javascript):
    censored = [cell(1, 1.0, seed, None) for seed in range(3)]
    found = ranked(javascript, linked(0, 100.0, (1.0, 10.0)) + censored + linked(1, 20.0, (10.0,)), 3.0)
    assert [row["arm"] for row in found["rows"]] == [0, 1]
    assert found["rows"][1]["value"] == float("inf") and 2.0 < found["rows"][1]["atLeast"] < 50.0


def test_one_node_alone_stands_beside_every_link_and_a_free_network_beside_none(javascript):
    alone = [cell(2, None, seed, 20.0 + seed, "reference") for seed in range(3)]
    free = [cell(3, None, seed, 1.0, "headroom") for seed in range(3)]
    cells = linked(0, 100.0, (1.0, 10.0)) + alone + free
    assert [row["arm"] for row in ranked(javascript, cells, 1.0)["rows"]] == [2, 0]
    rows = ranked(javascript, cells, 10.0)["rows"]
    assert [row["arm"] for row in rows] == [0, 2] and rows[1]["ratio"]["value"] > 1.9


def test_the_nearest_round_trip_is_by_ratio(javascript):
    assert javascript.evaluate("nearestRtt([0.001, 0.01, 0.1], 0.04)") == 0.1
    assert javascript.evaluate("nearestRtt([0.001, 0.01, 0.1], 0.02)") == 0.01
    assert javascript.evaluate("nearestRtt([0.005], 0)") == 0.005
    assert javascript.evaluate("nearestRtt([null], 0.01)") is None


STUDIES = (
    Study("sweep", bandwidths_mbps=(1.0, 3.0, 10.0, 100.0), medium="switched"),
    Study("sweep", bandwidths_mbps=(1.0, 10.0), repeats=1),
    Study("sweep", bandwidths_mbps=(1.0, 10.0), limit_s=14.0, samples_scale=3000.0),
    Study("sweep", bandwidths_mbps=(1.0, 10.0), step_time_s=0.005, arms=("ring", "ddp", "no-communication", "single")),
    Study("sweep", bandwidths_mbps=(None,), arms=("ring", "ddp", "threshold")),
    Study("sweep", bandwidths_mbps=(1.0, 10.0), arms=("ring-int8", "ddp", "single")),
)


@pytest.mark.parametrize("study", STUDIES, ids=range(len(STUDIES)))
def test_the_page_says_the_answer_of_the_tables(chromium, tmp_path, study):
    """Word for word, at every link that was measured."""
    write_study(tmp_path, study)
    cells = list(iter_cells(tmp_path))
    file = tmp_path / "report.html"
    file.write_text(render_page(build_payload(cells, "x")), encoding="utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("body[data-drawn]", state="attached")
    said = """bandwidth => {
      const rtt = rttsOf(state.group)[0] ?? null, points = pointsOf(chosenCells(rtt), state.target);
      const sentences = sentencesOf(ranking(points, bandwidth).rows, rtt);
      return sentences.map((pieces) => pieces.map((piece) => piece.strong ?? piece).join("")).join(" ");
    }"""
    found = answers(cells, labels=arm_labels(folder.cell for folder in cells))
    assert len(found) == len(study.bandwidths_mbps)
    for answer in found:
        assert page.evaluate(said, answer.bandwidth_bps or 1e7) == plain(answer_phrase(answer))
    context.close()


def test_between_measured_links_the_answer_is_not_called_measured(chromium, javascript):
    cells = linked(0, 100.0, (1.0, 10.0)) + linked(1, 400.0, (1.0, 10.0))
    tag = "([cells, bandwidth]) => answerTag(ranking(pointsOf(cells, 0.9), bandwidth).rows)"
    assert javascript.evaluate(tag, [cells, 3e6]) == "[interpolated, n = 3]"
    assert javascript.evaluate(tag, [cells, 1e7]) == "[measured, n = 3]"


def test_numbers_read_alike(javascript):
    values = [0.0, 0.05, 0.996, 0.9949, 1.0, 1.004, 9.96, 10.4, 99.6, 147.0, 1204.3, 3e-7, 2.25]
    for digits in (2, 3):
        found = javascript.evaluate(
            "([values, digits]) => values.map((one) => significant(one, digits, 1))", [values, digits]
        )
        assert found == [significant(value, digits, 1.0) for value in values]
