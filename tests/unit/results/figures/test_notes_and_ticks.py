"""What pictures say about what they do not show, and where they put ticks and names."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pandas as pd
import pytest
from fixtures_matrices import write_matrix
from fixtures_records import Study, write_study
from matplotlib.figure import Figure

from bwbench.records import CellFolder
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.results import Results, load_results, once, regrouped
from bwbench.results.analysis.statistics import Estimate
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import _elsewhere, _level_of, one_link
from bwbench.results.figures.against_bytes import _along_front
from bwbench.results.figures.bandwidth import Throughput
from bwbench.results.figures.bars import StepTime, TimeToAccuracy
from bwbench.results.figures.batch_size import BatchSize
from bwbench.results.figures.marks import label_log_axis


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """Two arms at two bandwidths."""
    write_study(tmp_path, Study(arms=("ddp", "threshold"), repeats=2, bandwidths_mbps=(10.0, 100.0)))
    (results,) = load_results(tmp_path)
    return results


def test_bytes_that_depend_on_the_link_are_said(results: Results) -> None:
    sending = {"ddp", "threshold"}
    assert _elsewhere(results, one_link(results), sending) == "what is sent hardly depends on the link"
    slow = (results.cells["arm"] == "threshold") & (results.cells["bandwidth_bps"] == 1e7)
    results.cells.loc[slow, "wire_bytes_to_target"] *= 0.5
    said = _elsewhere(results, one_link(results), sending)
    assert re.fullmatch(r"on other links, threshold 0\.[45]\d* to 1(\.\d+)? times as much to the target", said)


def test_bytes_of_an_arm_that_does_not_arrive_are_compared_with_nothing(results: Results) -> None:
    shown = one_link(results)
    there = (shown.cells["arm"] == "threshold") & (shown.cells["bandwidth_bps"] == 1e8)
    shown.cells.loc[there, "wire_bytes_to_target"] = math.nan
    shown.cells.loc[there, "censored_at_s"] = 1.0
    assert _elsewhere(results, shown, {"ddp", "threshold"}) == "what is sent hardly depends on the link"


@pytest.mark.parametrize(
    ("times", "num_censored", "said"),
    [
        ([1.0, 2.0], [0, 0], []),
        ([math.inf, 2.0], [2, 0], ["Hollow"]),
        ([1.0, 2.0], [1, 0], ["Where other"]),
        ([math.inf, 2.0], [3, 1], ["Hollow", "Where other"]),
    ],
)
def test_what_marks_mean_where_repeats_did_not_arrive(
    times: list[float], num_censored: list[int], said: list[str]
) -> None:
    sentences = captions.on_censored(pd.Series(times), pd.Series(num_censored))
    assert len(sentences) == len(said)
    assert all(sentence.startswith(words) for sentence, words in zip(sentences, said, strict=True))


def test_the_line_through_the_front_is_followed_as_it_is_drawn() -> None:
    points = {"wire_bytes": [1e6, 100e6, 10e6], "y": [100.0, 1.0, 50.0], "front": [True, True, False]}
    by_time = _along_front(pd.DataFrame({**points, "against": "time"}), 1e6, 1.0)
    assert by_time[0] == pytest.approx((1.0, 100.0)) and by_time[-1] == pytest.approx((100.0, 1.0))
    assert all(x * y == pytest.approx(100.0) for x, y in by_time)  # straight on two logarithmic axes
    assert _along_front(pd.DataFrame({**points, "front": False, "against": "time"}), 1e6, 1.0) == []


@pytest.mark.parametrize(
    ("low", "high", "length_in", "ticks"),
    [
        (9.0, 110.0, 3.0, [10.0, 20.0, 50.0, 100.0]),
        (15.0, 400.0, 1.1, [30.0, 100.0, 300.0]),
        (0.5, 2000.0, 1.5, [1.0, 10.0, 100.0, 1000.0]),
        (12.0, 90.0, 0.5, [20.0, 50.0]),  # as near as they are: one number is no scale
    ],
)
def test_a_logarithmic_axis_has_two_numbers_at_least(
    low: float, high: float, length_in: float, ticks: list[float]
) -> None:
    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    label_log_axis(axes.xaxis, low, high, length_in)
    assert [float(tick) for tick in axes.xaxis.get_majorticklocs() if low <= tick <= high] == pytest.approx(ticks)


def test_what_is_explained_elsewhere_is_not_explained_again(results: Results) -> None:
    marks = {note[0] for note in results.notes} & set("†‡⊙")
    assert marks
    for said, there in (((), True), (marks, False)):
        figure = TimeToAccuracy().draw(regrouped([results], TimeToAccuracy.compares)[0], said=said)
        lines = [text.get_text() for text in figure.texts]
        assert any(line[:1] in marks for line in lines) is there
        assert lines[0].startswith("Time to ")


def test_bandwidths_that_hardly_differ_span_no_axis(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ddp", "single"), repeats=1, bandwidths_mbps=(10.256216591160225, 10.3)))
    (results,) = load_results(tmp_path)
    assert captions.too_few_bandwidths(results) == "the bandwidths are all but equal (10.26–10.3 Mbit/s)"
    assert "10.26–10.3 Mbit/s" in captions.setting_line(results, num_runs="")


def test_what_a_group_is_asked_twice_is_made_once(results: Results) -> None:
    calls = []

    @once
    def count(group: Results) -> int:
        calls.append(group)
        return len(group.done)

    assert count(results) == count(results) == 8 and len(calls) == 1
    (again,) = load_results(results.folders[0].path.parent)
    assert count(again) == 8 and len(calls) == 2  # another reading of the same files is another group


def test_a_run_that_ended_at_its_target_sent_all_its_bytes_for_it(results: Results) -> None:
    folder = next(one for one in results.done if one.cell.arm == "ddp")
    assert folder.status is not None
    status = folder.status.model_copy(update={"samples": 640, "samples_to_target": 640, "wire_bytes": 1000})
    drained = cast(
        CellFolder,
        SimpleNamespace(
            cell=folder.cell,
            status=status.model_copy(update={"wire_bytes_to_target": 0}),
            path=folder.path,
            asked_target=None,
            made={},
        ),
    )
    assert cell_row(drained)["wire_bytes_to_target"] == 1000
    went_on = cast(
        CellFolder,
        SimpleNamespace(
            cell=folder.cell,
            status=status.model_copy(update={"samples": 900, "wire_bytes_to_target": 7}),
            path=folder.path,
            asked_target=None,
            made={},
        ),
    )
    assert cell_row(went_on)["wire_bytes_to_target"] == 7


def test_arms_that_the_host_bounds_are_marked_where_their_marks_cannot_show_it(results: Results) -> None:
    def names() -> set[str]:
        return {label.get_text() for label in StepTime().draw(results).axes[0].get_yticklabels()}

    assert names() == {"ddp", "threshold"}
    results.cells["host_bound"] = [arm == "ddp" for arm in results.cells["arm"]]
    assert names() == {"ddp⊙", "threshold"}
    assert captions.host_bound_marked("ddp†", 2) == "ddp†⊙" and captions.host_bound_marked("ddp", 0) == "ddp"


def test_a_mark_that_all_arms_have_stands_behind_the_target_and_behind_no_name(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("no-communication", "ddp"), repeats=2, step_time_s=0.001))
    (group,) = load_results(tmp_path)
    figure = TimeToAccuracy().draw(group)
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {"no-communication", "ddp"}
    assert figure.texts[0].get_text().endswith("⊙")


def test_a_mark_that_some_arms_have_stands_behind_their_names(results: Results) -> None:
    results.cells["host_bound"] = [arm == "ddp" for arm in results.cells["arm"]]
    marks = captions.common_marks(results)
    assert marks.text == "" and marks.label(results, "ddp") == "ddp⊙"
    assert marks.label(results, "threshold") == "threshold"
    results.cells["host_bound"] = True
    marks = captions.common_marks(results)
    assert marks.text == "⊙" and marks.label(results, "ddp") == "ddp"


def test_times_stand_on_one_kind_of_axis_and_who_did_not_arrive_is_open(tmp_path: Path) -> None:
    for limit_s, scale in ((None, "log"), (11.5, "log")):
        write_study(tmp_path / str(limit_s), Study(arms=("ddp", "threshold", "single"), repeats=3, limit_s=limit_s))
        (group,) = load_results(tmp_path / str(limit_s))
        (axes,) = TimeToAccuracy().draw(group).axes
        assert axes.get_xscale() == scale
        bounds = TimeToAccuracy().table(group)["time_s"].map(math.isinf).sum()
        hollow = [line for line in axes.get_lines() if line.get_markerfacecolor() == "white"]
        assert len(hollow) == bounds


def test_intervals_of_first_crossings_are_said_to_lie_earlier(results: Results) -> None:
    (said,) = captions.on_first_crossings(results, pd.Series([2, 2]))
    assert "half an evaluation earlier" in said
    assert captions.on_first_crossings(results, pd.Series([1, 1])) == []  # no interval
    results.cells["arrival_kind"] = "fit"
    assert captions.on_first_crossings(results, pd.Series([2, 2])) == []


def test_what_links_have_in_common_is_said_once() -> None:
    links = ["20 Mbit/s, RTT 5 ms, shared air, queue 1 bdp", "20 Mbit/s, RTT 5 ms, switched, queue 1 bdp"]
    cells = pd.DataFrame({"link": links, "bandwidth_bps": 20e6, "rtt_s": 0.005})
    assert captions._link_without_bandwidth(cells) == "20 Mbit/s, RTT 5 ms, shared air or switched, queue 1 bdp"
    assert captions._link_without_bandwidth(cells[1:]) == "20 Mbit/s, RTT 5 ms, switched, queue 1 bdp"


def test_a_picture_without_times_to_the_target_says_nothing_of_first_crossings(results: Results) -> None:
    assert any(note.startswith("‡") for note in results.notes)
    for figure in (StepTime(), Throughput()):
        said = [text.get_text() for text in figure.draw(results).texts]
        assert not any(text.startswith("‡") for text in said)


def test_fitted_times_are_said() -> None:
    numbers = ((1.0, 0), (1.0, 1), (math.inf, 2))
    whole, partly, bound = (Estimate(value, None, None, 9.0, 3, num) for value, num in numbers)
    assert captions.on_fits([whole, bound]) == []
    assert len(captions.on_fits([whole, partly])) == 1


def test_the_mark_of_an_arrival_lies_where_other_pictures_say() -> None:
    def run(cost: float, level: float, *, met: bool = True) -> pd.DataFrame:
        return pd.DataFrame({"clock_s": [1.0, cost], "accuracy": [0.5, level], "target_met": [False, met]})

    both = [run(4.0, 0.9), run(9.0, 0.92)]
    assert _level_of(both, 6.0, "accuracy", "clock_s", 0.88) == pytest.approx(0.91)  # their geometric mean
    assert _level_of(both, 7.0, "accuracy", "clock_s", 0.88) == 0.88  # fitted
    assert _level_of([*both, run(9.0, 0.8, met=False)], 6.0, "accuracy", "clock_s", 0.88) == 0.88


def test_samples_have_the_look_of_the_link_that_they_stand_for(tmp_path: Path) -> None:
    write_matrix(tmp_path, "batch_size", ("repeats=1",))
    (group,) = regrouped(load_results(tmp_path), BatchSize.compares)
    figure = BatchSize().draw(group)
    looks = {str(entry.get_label()): entry.get_marker() for entry in figure.legends[0].get_lines()}
    marks = [line.get_marker() for line in figure.axes[0].get_lines() if len(line.get_xdata()) == 1]
    assert {"10 Mbit/s", "100 Mbit/s", "no link"} == set(looks)
    assert set(marks) == {looks["100 Mbit/s"], looks["no link"]}
