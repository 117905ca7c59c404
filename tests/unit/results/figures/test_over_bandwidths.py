"""Figures over bandwidths: what stands in their tables, where lines and limits lie, and which labels are left out."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study
from matplotlib.colors import to_rgb
from matplotlib.path import Path as Shape

from bwbench.methods.roles import HEADROOM, METHOD
from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures.arm_map import MapCell, order_of
from bwbench.results.figures.bandwidth import MOST_TIMES, Throughput, TimeToAccuracyByBandwidth, shown_of
from bwbench.results.figures.best_algorithm import BestAlgorithm, _host_bound_links, races_of
from bwbench.results.figures.families import APART, BITS, MOST_LINES, NUMBERS, SELDOM, WHOLE, family_of, shown_arms
from bwbench.results.figures.frame import framed_axes
from bwbench.results.figures.lines import ArmLine, Mark, _dodges, draw
from bwbench.results.figures.speedup import SpeedUp, baseline_of
from bwbench.results.figures.style import WIDTHS_IN, arm_style

ARMS = ("ddp", "ring-fp16", "threshold", "single", "no-communication")
STYLE = arm_style("ring", METHOD)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Five arms at three bandwidths."""
    root = tmp_path_factory.mktemp("sweep")
    write_study(
        root, Study(arms=ARMS, repeats=2, bandwidths_mbps=(1.0, 10.0, 1000.0), samples_scale=3000.0, medium="switched")
    )
    (results,) = load_results(root)
    return results


def test_each_arm_stands_over_the_shortest_time_there(sweep: Results) -> None:
    table = TimeToAccuracyByBandwidth().table(sweep).set_index(["bandwidth_bps", "arm"])
    assert set(table.index.get_level_values("arm")) == set(ARMS) - {"no-communication"}
    for _, rows in table.groupby(level="bandwidth_bps"):
        assert rows["over_best"].min() == 1.0
        assert list(rows["over_best"]) == pytest.approx(list(rows["time_s"] / rows["time_s"].min()))
        assert rows.loc[rows["over_best"] == 1.0, "may_be_fastest"].all()
    single = table["over_best"].xs("single", level="arm").sort_index()
    assert single.iloc[0] < single.iloc[-1]  # alone it is as fast on any link, and the others catch up


def test_lines_are_named_at_their_ends_and_the_best_set_is_full(sweep: Results) -> None:
    figure = TimeToAccuracyByBandwidth().draw(sweep, WIDTHS_IN["column"])
    axes = figure.axes[0]
    names = {text.get_text().rstrip("†⊙") for text in axes.texts if text.get_text()}
    assert names == {"ddp", "ring-fp16", "threshold", "single (1 node)"} and not figure.legends
    table = TimeToAccuracyByBandwidth().table(sweep)
    inside = table[table["over_best"] <= MOST_TIMES]
    assert len(inside) < len(table) and axes.get_ylim()[1] == MOST_TIMES, "what takes longer leaves the picture"
    assert f"over {MOST_TIMES:.0f} times as long" in " ".join(text.get_text() for text in figure.texts)
    faces = [line.get_markerfacecolor() for line in axes.get_lines() if line.get_marker() not in ("None", "", "_")]
    assert sum(face == "white" for face in faces) == (~inside["may_be_fastest"]).sum()
    whiskers = [line for line in axes.get_lines() if line.get_marker() == "_"]
    assert len(whiskers) == len(inside), "an interval at each mark"


def test_nobody_at_the_target_is_no_picture(tmp_path: Path) -> None:
    write_study(tmp_path, Study(repeats=2, limit_s=0.3, bandwidths_mbps=(1.0, 10.0), arms=("ddp", "ring")))
    (results,) = load_results(tmp_path)
    assert TimeToAccuracyByBandwidth().applies(results) == "arms reached the target at one bandwidth at most"


def test_of_many_arms_one_of_each_way_to_send_less_is_drawn(tmp_path: Path) -> None:
    write_matrix(tmp_path, "bandwidth-cnn", ("link.bandwidth=[1 Mbit/s, 54 Mbit/s, 300 Mbit/s]", "repeats=2"))
    (results,) = load_results(tmp_path)
    drawn = shown_of(results)
    assert len(drawn.arms) == MOST_LINES and {"ddp", "single"} <= set(drawn.arms)
    assert "ring" in drawn.others and "no-communication" not in drawn.others
    families = {
        folder.cell.arm: family_of(folder.cell, results.roles[folder.cell.arm])
        for folder in results.done
        if results.roles[folder.cell.arm] != HEADROOM
    }
    first = {race.best.first for race in races_of(results)}
    assert first <= set(drawn.arms)
    assert len({families[arm] for arm in drawn.arms}) >= MOST_LINES - len(first - {"ddp"}) + 1
    of_ways = shown_arms(results, [*drawn.arms, *drawn.others])
    assert len({families[arm] for arm in of_ways.arms}) == MOST_LINES and not of_ways.leads
    assert families["ddp"] == families["ring"] == WHOLE and families["bytegrad"] == families["ring-fp16"] == BITS
    assert (
        families["top-k"] == families["powersgd"] == NUMBERS and families["diloco"] == families["local-sgd"] == SELDOM
    )
    assert families["decentralized"] == APART
    (said,) = drawn.note(results.labels)
    assert said.endswith("powersgd, qadam, ring.") and "Not drawn: " in said
    (known,) = drawn.note(results.labels, ["ring"])
    assert "Not drawn, and perhaps as fast on a link: ring. Not drawn: " in known
    table = TimeToAccuracyByBandwidth().table(results)
    assert set(table.loc[table["drawn"], "arm"]) == set(drawn.arms) < set(table["arm"])
    led = shown_arms(results, [*drawn.arms, *drawn.others], first=["ring", "bytegrad"])
    assert {"ddp", "ring", "bytegrad"} < set(led.arms) and len(led.arms) == MOST_LINES
    assert "and what is first somewhere" in led.note({})[0]


def test_few_arms_are_all_drawn(sweep: Results) -> None:
    drawn = shown_of(sweep)
    assert set(drawn.arms) == set(ARMS) - {"no-communication"} and drawn.note(sweep.labels) == []


def test_a_speed_up_is_shorter_steps_times_fewer_samples(sweep: Results) -> None:
    results = next(one for one in regrouped([sweep], SpeedUp.compares) if 1e6 in one.bandwidths)
    table = SpeedUp().table(results).set_index("arm")
    assert set(table["baseline"]) == {"ddp"} and "ddp" not in table.index
    assert table["speedup"].is_monotonic_decreasing
    times = sweep.times.set_index(["arm", "bandwidth_bps"])["time_s"]
    threshold = table.loc["threshold"]
    assert threshold["speedup"] == pytest.approx(times["ddp", 1e6] / times["threshold", 1e6])
    assert threshold["step_ratio"] * threshold["samples_ratio"] == pytest.approx(threshold["speedup"])
    assert threshold["step_ratio"] > 1 >= threshold["samples_ratio"]


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


def test_lines_between_sites_make_the_axis(tmp_path: Path) -> None:
    for rate_mbps in (20, 50, 100):
        link = {
            "shaped": True, "bandwidth": "1 Gbit/s", "latency": "1 ms", "medium": "switched",
            "sites": [{"name": name, "bandwidth": f"{rate_mbps} Mbit/s"} for name in ("a", "b")],
        }  # fmt: skip
        bandwidths = (float(rate_mbps),)
        write_study(tmp_path, Study(arms=("ddp", "threshold"), bandwidths_mbps=bandwidths, extra={"link": link}))
    (results,) = load_results(tmp_path)
    assert sorted(set(TimeToAccuracyByBandwidth().table(results)["bandwidth_bps"])) == [2e7, 5e7, 1e8]


def test_an_arm_that_ran_on_other_links_alone_is_named_and_not_drawn(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ddp", "ring-fp16"), bandwidths_mbps=(10.0, 50.0)))
    write_study(tmp_path, Study(arms=("threshold",), bandwidths_mbps=(1.0,)))
    (results,) = load_results(tmp_path)
    figure = TimeToAccuracyByBandwidth()
    assert figure.applies(results) is None
    table = figure.table(results)
    assert not table[table["arm"] == "threshold"]["drawn"].any()
    assert (table["num_composed"] <= table["num"]).all()
    for width_in in WIDTHS_IN.values():
        texts = " ".join(text.get_text() for text in figure.draw(results, width_in).texts)
        assert "threshold: on other links alone." in texts.replace("\n", " ")


def test_marks_stay_with_their_bandwidth_however_many_arms_there_are() -> None:
    marks = tuple(Mark(bps, 1.0) for bps in (1e6, 2e6, 5e6))
    factors = _dodges([ArmLine(f"arm-{number}", STYLE, "", marks) for number in range(30)])
    assert factors == sorted(factors) and max(factors) / min(factors) < 2**0.5
    assert _dodges([ArmLine("one", STYLE, "", marks)]) == [1.0]


def test_only_host_bound_cells_get_their_mark() -> None:
    bound = (Mark(1e6, 1.0), Mark(2e6, 1.0, host_bound=True), Mark(5e6, 1.0, host_bound=True))
    free = tuple(Mark(mark.bandwidth_bps, 2.0) for mark in bound)
    arms = [ArmLine("ring", STYLE, "ring", bound), ArmLine("ddp", STYLE, "ddp", free)]
    figure, axes = framed_axes(WIDTHS_IN["column"], 2.0, "title", "setting", [])
    draw(figure, axes, arms, WIDTHS_IN["column"])
    marked = [line for line in axes.get_lines() if isinstance(line.get_marker(), Shape)]
    assert [list(line.get_ydata()) for line in marked] == [[1.0, 1.0]]


def test_what_all_marks_would_show_is_said_in_the_title_alone(sweep: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    linked = sweep.cells["bandwidth_bps"].notna()
    for bound in (linked, linked & (sweep.cells["arm"] == "ddp")):
        monkeypatch.setitem(sweep.__dict__, "cells", sweep.cells.assign(host_bound=bound))
        figure = Throughput().draw(sweep, WIDTHS_IN["column"])
        dotted = [line for line in figure.axes[0].get_lines() if isinstance(line.get_marker(), Shape)]
        said = any("Hollow with a dot" in text.get_text() for text in figure.texts)
        assert ("⊙" in figure.texts[0].get_text()) is not bool(dotted) and said is bool(dotted)


def test_rates_are_named_at_their_ends_with_the_levels_that_no_link_concerns(sweep: Results) -> None:
    figure = Throughput().draw(sweep, WIDTHS_IN["column"])
    names = {text.get_text().rstrip("†⊙") for text in figure.axes[0].texts}
    assert {"ddp", "threshold", "single (1 node)", "no-communication", "ideal: 4 × single"} <= names
    assert not figure.legends


def test_the_arm_that_ran_on_most_links_stands_for_its_way(tmp_path: Path) -> None:
    links = ("link.bandwidth=[1 Mbit/s, 54 Mbit/s, 300 Mbit/s]", "repeats=1")
    write_matrix(tmp_path, "bandwidth-cnn", links)
    (results,) = load_results(tmp_path)
    usual = shown_of(results)
    ways = {str(folder.cell.arm): family_of(folder.cell, results.roles[folder.cell.arm]) for folder in results.done}
    kin = {ways[arm] for arm in usual.others}
    left = next(arm for arm in usual.arms if ways[arm] in kin and arm != "ddp")
    cells = results.cells
    fewer = cells[~((cells["arm"] == left) & (cells["bandwidth_bps"] < 100e6))]
    order = [*usual.arms, *usual.others]
    results.__dict__["cells"] = fewer
    assert left not in shown_arms(results, order, [left] * 9).arms


def test_the_map_has_a_column_a_link_and_a_row_an_arm(tmp_path: Path) -> None:
    write_matrix(tmp_path, "latency", ("algorithm=[single, ddp, diloco]", "repeats=2"))
    results = load_results(tmp_path)
    (across,) = regrouped(results, BestAlgorithm.compares)
    table = BestAlgorithm().table(across)
    assert len(table) == 2 * 5 * 3 and set(table["arm"]) == {"single", "ddp", "diloco"}
    for _, rows in table.groupby(["bandwidth_bps", "rtt_s"]):
        assert rows["over_best"].min() == 1.0 and rows.loc[rows["over_best"] == 1.0, "may_be_fastest"].all()
    axes = BestAlgorithm().draw(across, WIDTHS_IN["page"]).axes[0]
    order = order_of([race.best for race in races_of(across)])
    assert [text.get_text().partition(" ")[0].rstrip("†⊙") for text in axes.get_yticklabels()] == order
    written = [text.get_text() for text in axes.texts]
    assert written.count("1") >= 10  # the fastest on each link
    assert {"200 us", "200 ms"} <= set(written)  # below their bandwidths


def test_links_that_are_host_bound_as_a_whole_are_marked_and_no_arm(tmp_path: Path) -> None:
    write_matrix(tmp_path, "latency", ("algorithm=[single, ddp, diloco]", "repeats=2"))
    (across,) = regrouped(load_results(tmp_path), BestAlgorithm.compares)
    races, cells = races_of(across), across.cells
    for race in races[:2]:
        here = (cells["bandwidth_bps"] == race.bandwidth_bps) & (cells["rtt_s"] == race.rtt_s)
        cells.loc[here & (cells["role"] == METHOD), "host_bound"] = True
    assert _host_bound_links(cells, races) == races[:2]
    axes = BestAlgorithm().draw(across, WIDTHS_IN["page"]).axes[0]
    assert not any("⊙" in text.get_text() for text in axes.get_yticklabels())
    assert sum("⊙" in text.get_text() for text in axes.get_xticklabels()) == 2
    some = (cells["bandwidth_bps"] == races[0].bandwidth_bps) & (cells["arm"] == "ddp")
    assert not _host_bound_links(cells.assign(host_bound=some), races)  # by arm
    assert not _host_bound_links(cells.assign(host_bound=True), races)  # all: said in the title


def test_one_link_is_no_map(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ddp", "ring"), repeats=2))
    (results,) = load_results(tmp_path)
    assert BestAlgorithm().applies(results) == "only one link"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (MapCell(1.0, best=True), "1"),
        (MapCell(1.02), "1.0"),
        (MapCell(1.6, fitted=True), "~1.6"),
        (MapCell(1.6, bound=True, fitted=True), ">1.6"),
        (MapCell(12.3), "12"),
        (MapCell(9.97), "10"),
        (MapCell(3.46, bound=True), ">3.5"),
        (MapCell(0.58, races=False), "0.6"),
    ],
)
def test_a_cell_of_a_map_says_how_far_it_is_behind(cell: MapCell, text: str) -> None:
    assert cell.text == text


def test_the_farther_behind_the_paler_and_the_best_stand_out_in_grey() -> None:
    greys = [grey(MapCell(over).fill) for over in (1.1, 2.0, 5.0, 20.0)]
    assert greys == sorted(greys) and greys[-1] == pytest.approx(1.0)
    assert greys[0] - grey(MapCell(1.0, best=True).fill) > 0.4


def grey(color: str) -> float:
    red, green, blue = to_rgb(color)
    return 0.299 * red + 0.587 * green + 0.114 * blue
