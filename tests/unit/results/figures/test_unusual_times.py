"""What stands below a title of slow motion, of nodes that differ and of nodes without times, and what is not drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, write_study

from bwbench.base.registry import FIGURES
from bwbench.results.analysis.results import Results, load_results, regrouped
from bwbench.results.figures import captions
from bwbench.results.figures.accuracy_curves import AccuracyOverSamples, AccuracyOverTime
from bwbench.results.figures.style import COLUMN_IN

ARMS = ("ddp", "ring", "single")
DIFFER = {"threads": 1, "step_time": "60 ms", "overrides": {"2": {"step_time": "120 ms"}}}
DRAWN = {"threads": 1, "step_time": {"mean": "60 ms", "spread": 0.2}}
MANY = {"threads": 1, "step_time": "60 ms", "overrides": {str(n): {"step_time": "90 ms"} for n in range(4)}}


def only(root: Path, study: Study) -> Results:
    write_study(root, study)
    (results,) = load_results(root)
    return results


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "cnn on digits · 4 nodes · 10 Mbit/s"),
        ({"dilation": 1.0}, "4 nodes · 10 Mbit/s"),
        ({"dilation": 4.0}, "4 nodes · dilation 4 · 10 Mbit/s"),
        ({"compute": DIFFER}, "4 nodes · step 60 ms, node 2: 120 ms · 10 Mbit/s"),
        ({"compute": DRAWN}, "4 nodes · step 60 ms ± 20 % · 10 Mbit/s"),
        ({"compute": MANY}, "4 nodes · step 60 ms, 4 nodes differ · 10 Mbit/s"),
        ({"compute": {"threads": 1, "step_time": "60 ms"}}, "4 nodes · 10 Mbit/s"),
    ],
)
def test_the_setting_names_what_is_unusual(tmp_path: Path, extra: dict[str, Any], said: str) -> None:
    results = only(tmp_path, Study(arms=ARMS, repeats=1, extra=extra))
    assert said in captions.setting_line(results, num_runs=[1])


def test_slow_motion_that_tells_pictures_apart_is_said_once(tmp_path: Path) -> None:
    for factor in (1.0, 4.0):
        write_study(tmp_path, Study(arms=("ddp", "ring"), repeats=1, extra={"dilation": factor}))
    lines = [captions.setting_line(one, num_runs=[1]) for one in load_results(tmp_path)]
    assert sorted(line.count("dilation") for line in lines) == [1, 1]


@pytest.fixture
def virtual(tmp_path: Path) -> Results:
    return only(tmp_path, Study(arms=ARMS, repeats=2, environment={"virtual": True}))


def test_no_picture_holds_times_of_virtual_nodes(virtual: Results) -> None:
    drawn = set()
    for name in FIGURES.names():
        figure = FIGURES.load(name)()
        for results in regrouped([virtual], figure.compares):
            if figure.why_not(results) is None:
                drawn.add(name)
    assert "accuracy-over-samples" in drawn
    assert not drawn & {"accuracy-over-time", "time-to-accuracy", "step-time", "bandwidth", "throughput", "arrivals",
                        "nodes", "links", "speedup", "topology", "best-algorithm"}  # fmt: skip
    assert "virtual nodes have no times" in str(AccuracyOverTime().why_not(virtual))


def test_curves_of_virtual_nodes_stand_over_samples(virtual: Results) -> None:
    figure = AccuracyOverSamples()
    picture = figure.draw(virtual, COLUMN_IN)
    (axes,) = picture.axes
    assert axes.get_xlabel().startswith("training samples, all nodes")
    words = [text.get_text() for legend in picture.legends for text in legend.get_texts()]
    assert any(word.startswith("ring: ") for word in words)
    assert len(figure.table(virtual)) == len(virtual.curves)


def test_beside_others_virtual_nodes_are_left_out_of_times(tmp_path: Path) -> None:
    write_study(tmp_path, Study(arms=("ring", "single"), repeats=1))
    results = only(tmp_path, Study(arms=("ddp",), repeats=1, environment={"virtual": True}))
    assert set(AccuracyOverTime().table(results)["arm"]) == {"ring", "single"}
    assert set(AccuracyOverSamples().table(results)["arm"]) == {"ddp", "ring", "single"}
    assert set(results.times["arm"]) == {"ring", "single"} == set(results.ledger["arm"])


def test_cells_that_have_times_need_no_picture_over_samples(tmp_path: Path) -> None:
    results = only(tmp_path, Study(arms=ARMS, repeats=1))
    assert "accuracy-over-time shows them" in str(AccuracyOverSamples().why_not(results))


def test_long_names_are_broken_before_their_options() -> None:
    assert captions.in_short_lines("top-k(no error_feedback)") == "top-k\n(no error_feedback)"
    assert captions.in_short_lines("low-precision-decentralized") == "low-precision-\ndecentralized"
    assert captions.in_short_lines("one-node-all-by-itself (1 node)").count("\n") == 1
    long = captions.in_short_lines("diloco-dct-top-k(period=16, outer_lr=1, outer_momentum=0, in=gradient, decay=0.95)")
    assert long.split("\n")[0] == "diloco-dct-top-k" and long.count("\n") == 3
    assert max(map(len, long.split("\n"))) <= captions.LONG_OPTIONS
