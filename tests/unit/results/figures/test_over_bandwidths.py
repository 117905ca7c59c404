"""Figures over bandwidths: what stands in their tables, where lines and limits lie, and which labels are left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study
from matplotlib.path import Path as Shape

from bwbench.methods.roles import METHOD
from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures import captions
from bwbench.results.figures.bandwidth import Throughput, link_bound_of
from bwbench.results.figures.best_algorithm import BestAlgorithm, _codes
from bwbench.results.figures.lines import ArmLine, Mark, _dodges, draw, framed
from bwbench.results.figures.speedup import SpeedUp, baseline_of
from bwbench.results.figures.style import WIDTHS_IN, arm_style

ARMS = ("ddp", "ring-fp16", "threshold", "single", "no-communication")
STYLE = arm_style("ring", METHOD)
SECONDS = captions.TimeUnit("s", 1.0)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Five arms at three bandwidths."""
    root = tmp_path_factory.mktemp("sweep")
    write_study(
        root, Study(arms=ARMS, repeats=2, bandwidths_mbps=(1.0, 10.0, 1000.0), samples_scale=3000.0, medium="switched")
    )
    (results,) = load_results(root)
    return results


def test_speed_up_is_paired_over_ddp_and_falls_as_the_link_grows(sweep: Results) -> None:
    table = SpeedUp().table(sweep)
    assert set(table["baseline"]) == {"ddp"} and "ddp" not in set(table["arm"])
    threshold = table[table["arm"] == "threshold"].set_index("bandwidth_bps")["speedup"]
    assert threshold[1e6] > threshold[1e7] > threshold[1e9]
    times = sweep.times.set_index(["arm", "bandwidth_bps"])["time_s"]
    assert threshold[1e6] == pytest.approx(times["ddp", 1e6] / times["threshold", 1e6])
    assert table["s_over_bt"].is_monotonic_decreasing


def test_where_a_line_crosses_one_stands_beside_it(sweep: Results) -> None:
    table = SpeedUp().table(sweep)
    single = table[table["arm"] == "single"].sort_values("bandwidth_bps")
    assert single["speedup"].iloc[0] > 1 > single["speedup"].iloc[-1]
    (crossed,) = single["crossovers"].iloc[0]
    assert 1e6 < crossed["bandwidth_bps"] < 1e9 and crossed["arm_faster_below"] is not False


def test_without_ddp_another_arm_is_the_baseline(tmp_path: Path) -> None:
    arms = ("threshold", "ring", "no-communication")
    write_study(tmp_path, Study(arms=arms, repeats=1, bandwidths_mbps=(1.0, 10.0), limit_s=2.0))
    (results,) = load_results(tmp_path)
    assert baseline_of(results) == "ring"


def test_throughput_is_samples_over_training_time(sweep: Results) -> None:
    table = Throughput().table(sweep).set_index(["arm", "bandwidth_bps"])
    row = table.loc[("ddp", 1e6)]
    cells = sweep.cells[(sweep.cells["arm"] == "ddp") & (sweep.cells["bandwidth_bps"] == 1e6)]
    rates = cells["samples"] / cells["training_clock_s"]
    assert row["samples_per_s"] == pytest.approx(math.prod(rates) ** 0.5)
    assert row["low"] <= row["samples_per_s"] <= row["high"]
    assert table.loc[("ddp", 1e9)]["samples_per_s"] > row["samples_per_s"]


def test_no_run_is_faster_than_its_link(sweep: Results) -> None:
    bound = link_bound_of(sweep, SECONDS)
    assert bound is not None and bound.arm == "ddp"
    times = sweep.times[sweep.times["arm"] == "ddp"].set_index("bandwidth_bps")["time_s"]
    assert all(bound.at(bps) < time_s for bps, time_s in times.items())
    assert bound.at(1e6) == pytest.approx(10 * bound.at(1e7))


def test_lines_between_sites_make_the_axis_and_bytes_of_a_node_bound_nothing_there(tmp_path: Path) -> None:
    for rate_mbps in (20, 50, 100):
        link = {
            "shaped": True, "bandwidth": "1 Gbit/s", "latency": "1 ms", "medium": "switched",
            "sites": [{"name": name, "bandwidth": f"{rate_mbps} Mbit/s"} for name in ("a", "b")],
        }  # fmt: skip
        bandwidths = (float(rate_mbps),)
        write_study(tmp_path, Study(arms=("ddp", "threshold"), bandwidths_mbps=bandwidths, extra={"link": link}))
    (results,) = load_results(tmp_path)
    assert sorted(set(SpeedUp().table(results)["bandwidth_bps"])) == [2e7, 5e7, 1e8]
    assert link_bound_of(results, SECONDS) is None


def test_marks_stay_with_their_bandwidth_however_many_arms_there_are() -> None:
    marks = tuple(Mark(bps, 1.0) for bps in (1e6, 2e6, 5e6))
    factors = _dodges([ArmLine(f"arm-{number}", STYLE, "", marks) for number in range(30)])
    assert factors == sorted(factors) and max(factors) / min(factors) < 2**0.5
    assert _dodges([ArmLine("one", STYLE, "", marks)]) == [1.0]


def test_only_host_bound_cells_get_their_mark_and_the_legend_says_so() -> None:
    bound = (Mark(1e6, 1.0), Mark(2e6, 1.0, host_bound=True), Mark(5e6, 1.0, host_bound=True))
    free = tuple(Mark(mark.bandwidth_bps, 2.0) for mark in bound)
    arms = [ArmLine("ring", STYLE, "ring", bound), ArmLine("ddp", STYLE, "ddp", free)]
    figure, axes = framed(WIDTHS_IN["column"], "title", "setting", [], arms)
    draw(figure, axes, arms, WIDTHS_IN["column"])
    marked = [line for line in axes.get_lines() if isinstance(line.get_marker(), Shape)]
    assert [list(line.get_ydata()) for line in marked] == [[1.0, 1.0]]
    assert "host-bound" in [text.get_text() for text in figure.legends[0].get_texts()]
    figure, _ = framed(WIDTHS_IN["column"], "title", "setting", [], arms[1:])
    assert "host-bound" not in [text.get_text() for text in figure.legends[0].get_texts()]


def test_codes_of_arms_are_short_and_unlike() -> None:
    codes = _codes(["ddp", "diloco", "ring-fp16", "ring-fp8", "d", "diloco"])
    assert len(set(codes.values())) == len(codes) and codes["diloco"] == "D"
    assert all(len(code) <= 3 for code in codes.values())


def test_the_map_has_a_cell_a_link(tmp_path: Path) -> None:
    write_matrix(tmp_path, "latency", ("algorithm=[single, ddp, diloco]", "repeats=2"))
    results = load_results(tmp_path)
    (across,) = regrouped(results, BestAlgorithm.compares)
    table = BestAlgorithm().table(across)
    assert len(table) == 2 * 5 and set(table["arm"]) <= {"single", "ddp", "diloco"}
    assert BestAlgorithm().applies(results[0]) == "only one latency (RTT 200 us)"
    written = {
        text.get_text().removesuffix("†") for text in BestAlgorithm().draw(across, WIDTHS_IN["page"]).axes[0].texts
    }
    assert set(table["arm"].dropna()) <= written
