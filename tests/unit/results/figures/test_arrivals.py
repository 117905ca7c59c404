"""The share of repeats that has arrived: when there is something to see, and that no repeat is missing from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_records import Study, write_study
from matplotlib.text import Annotation

from bwbench.results.analysis.results import Results, load_results
from bwbench.results.figures.arrivals import Arrivals, _drawn, curves_of
from bwbench.results.figures.families import MOST_LINES
from bwbench.results.figures.style import WIDTHS_IN

ARMS = ("no-communication", "threshold", "ring")  # all, some and none of their repeats arrive within 3.1 s
LIMIT_S = 3.1
REPEATS = 4


def results_of(folder: Path, study: Study) -> Results:
    write_study(folder, study)
    (results,) = load_results(folder)
    return results


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Results:
    study = Study(arms=ARMS, repeats=REPEATS, limit_s=LIMIT_S)
    return results_of(tmp_path_factory.mktemp("some"), study)


@pytest.mark.parametrize(
    ("study", "why_not"),
    [
        (Study(arms=("ddp", "threshold"), repeats=3), "beside some that did not"),  # all arrive: dots elsewhere
        (Study(arms=("no-communication", "ring"), repeats=3, limit_s=LIMIT_S), "beside some that did not"),  # a bound
        (Study(arms=("ddp",), repeats=3, target=None, limit_s=1.0), "no target"),
    ],
)
def test_it_is_for_arms_of_which_some_repeats_arrive(tmp_path: Path, study: Study, why_not: str) -> None:
    assert why_not in (Arrivals().why_not(results_of(tmp_path, study)) or "")


def test_every_repeat_stands_in_the_table_once(some: Results) -> None:
    assert Arrivals().why_not(some) is None
    table = Arrivals().table(some)
    happened = table.groupby("arm")[["num_arrived", "num_censored"]].sum()
    assert (happened.sum(axis=1) == REPEATS).all() and set(happened.index) == set(ARMS)
    assert happened["num_censored"]["no-communication"] == 0 and happened["num_arrived"]["ring"] == 0
    assert 0 < happened["num_censored"]["threshold"] < REPEATS
    last = table.groupby("arm")["share_arrived"].last()
    assert last["no-communication"] == 1 and last["ring"] == 0 and 0 < last["threshold"] < 1
    times = some.cells.set_index("arm")["time_to_target_s"].dropna()
    assert set(table[table["num_arrived"] > 0]["time_s"]) == set(times)


def test_half_is_marked_where_a_curve_gets_there(some: Results) -> None:
    table = Arrivals().table(some)
    for arm, rows in table.groupby("arm"):
        reached = rows[rows["share_arrived"] >= 0.5]
        assert list(rows[rows["half"]]["time_s"]) == list(reached["time_s"][:1]), arm
    axes = Arrivals().draw(some, WIDTHS_IN["page"]).axes[0]
    halves = {curve.arm: curve.half_s for curve in curves_of(some)}
    assert halves["ring"] is None and halves["no-communication"] is not None
    at_half = [line for line in axes.get_lines() if list(line.get_ydata()) == [0.5] and len(line.get_xdata()) == 1]
    assert sorted(line.get_xdata()[0] for line in at_half) == sorted(half for half in halves.values() if half)


@pytest.mark.parametrize("width", WIDTHS_IN)
def test_every_arm_is_named_with_how_many_arrived(some: Results, width: str) -> None:
    figure = Arrivals().draw(some, WIDTHS_IN[width])
    names = {text.get_text() for text in figure.findobj(Annotation)}
    names |= {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    assert {f"no-communication: {REPEATS} of {REPEATS}", f"ring: 0 of {REPEATS}"} <= names
    assert sum(name.startswith("threshold: ") for name in names) == 1


def test_the_steps_never_fall_and_end_where_the_last_repeat_does(some: Results) -> None:
    axes = Arrivals().draw(some, WIDTHS_IN["column"]).axes[0]
    steps = [line for line in axes.get_lines() if line.get_drawstyle() == "steps-post"]
    assert len(steps) == len(ARMS)
    for curve, line in zip(curves_of(some), steps, strict=True):
        x, y = list(line.get_xdata()), list(line.get_ydata())
        assert x == sorted(x) and y == sorted(y)
        assert (x[-1] == axes.get_xlim()[1]) == (curve.steps[-1].share == 1)


def test_six_curves_are_drawn_first_those_that_arrive_in_part(some: Results) -> None:
    (mixed,) = (curve for curve in curves_of(some) if 0 < curve.num_arrived < curve.num)
    never = next(curve for curve in curves_of(some) if not curve.num_arrived)
    always = next(curve for curve in curves_of(some) if curve.num_arrived == curve.num)
    many = [replace(one, arm=f"{one.arm}-{number}") for one in (never, always, mixed) for number in range(4)]
    drawn = _drawn(many)
    assert len(drawn) == MOST_LINES and drawn == [curve for curve in many if curve in drawn]  # in their order
    assert sum(curve.num_arrived == mixed.num_arrived for curve in drawn) == 4
    assert not any(curve.num_arrived == 0 for curve in drawn)
    assert _drawn(curves_of(some)) == curves_of(some)
