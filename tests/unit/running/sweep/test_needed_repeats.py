"""``repeats: {until: …}``: a pilot says how many repeats an arm needs, and nothing else does."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.records import cell_at
from bwbench.running.sweep import SweepPlan, freeze_sweep, plan_sweep
from bwbench.running.sweep.needed_repeats import Known

STUDY = """\
name: study
nodes: 2
link: {bandwidth: 10 Mbit/s, latency: 2.5 ms}
model: logistic
dataset: digits
optimizer: {sgd: {lr: 0.05}}
target: {accuracy: 0.9}
repeats: {until: 20 %, at_least: 4, at_most: 9}
matrix: {algorithm: [ring, ddp]}
"""
WIDE = (1.0, 1.4, 0.8, 1.3)
NARROW = (1.0, 1.01, 0.99, 1.0)


def planned(folder: Path, text: str = STUDY) -> SweepPlan:
    (folder / "study.yaml").write_text(text)
    return plan_sweep([folder / "study.yaml"], folder / "results")


def finish(sweep: SweepPlan, arm: str, times_s: Sequence[float | None]) -> None:
    """Record what the repeats of an arm took; None: the target was not reached."""
    freeze_sweep(sweep)
    items = sorted((i for i in sweep.planned if i.cell.arm == arm), key=lambda item: item.cell.repeat)
    for item, time_s in zip(items, times_s, strict=False):
        reached = {"time_to_target_s": time_s, "samples_to_target": 640}
        end = {"censored_at_s": 50.0} if time_s is None else reached
        about = {"schema": 1, "id": item.cell.id, "slug": item.cell.slug, "status": "done", **end}
        (item.folder / "status.json").write_text(json.dumps(about))


def repeats(sweep: SweepPlan) -> dict[str, int]:
    arms = [item.cell.arm for item in sweep.planned]
    return {arm: arms.count(arm) for arm in sorted(set(arms))}


def test_a_pilot_comes_first_and_says_how_many_each_arm_needs(tmp_path: Path) -> None:
    sweep = planned(tmp_path)
    assert repeats(sweep) == {"ddp": 4, "ring": 4}
    assert "2 cannot be said yet (4 of 4 repeats are to be run first)" in sweep.notes[-1]
    finish(sweep, "ring", WIDE)
    finish(sweep, "ddp", NARROW[:3])
    assert repeats(planned(tmp_path)) == {"ddp": 4, "ring": 9}
    finish(planned(tmp_path), "ddp", NARROW)
    after = planned(tmp_path)
    assert repeats(after) == {"ddp": 4, "ring": 9}
    wanted = Known(statistics.stdev(map(math.log, WIDE)), 4, 4).until(math.log1p(0.2), 1000).repeats
    assert wanted > 9 and f"ring takes 9 of the {wanted} that it needs" in after.notes[-1]
    assert "1 of 2 arms are known with the 4 of their pilot" in after.notes[-1]


def test_what_comes_after_the_pilot_changes_nothing(tmp_path: Path) -> None:
    text = STUDY.replace("at_most: 9", "at_most: 1000")
    finish(planned(tmp_path, text), "ring", WIDE)
    wanted = repeats(planned(tmp_path, text))["ring"]
    finish(planned(tmp_path, text), "ring", [*WIDE, 40.0, 0.1])
    assert repeats(planned(tmp_path, text))["ring"] == wanted > 9


def test_a_sweep_grows_by_what_its_pilot_asks_for(tmp_path: Path) -> None:
    sweep = planned(tmp_path)
    assert sweep.grown() is None
    finish(sweep, "ring", WIDE)
    grown = sweep.grown()
    assert grown is not None and [item.cell.repeat for item in grown.selected] == [4, 5, 6, 7, 8]
    assert {item.cell.arm for item in grown.todo} == {"ring"} and repeats(grown) == {"ddp": 4, "ring": 9}
    freeze_sweep(grown)
    assert {cell_at(item.folder).cell.pilot for item in grown.planned} == {4}


def test_repeats_without_a_time_leave_nothing_to_go_by(tmp_path: Path) -> None:
    finish(planned(tmp_path), "ring", [1.0, None, 1.0, 1.0])
    after = planned(tmp_path)
    assert repeats(after)["ring"] == 4 and "1 of 4 repeats have no time to a target" in after.notes[-1]


@pytest.mark.parametrize("spread", [0.05, 0.1, 0.3])
def test_as_many_repeats_as_the_width_takes(spread: float) -> None:
    number = Known(spread, 8, 8).until(math.log1p(0.15), 1000).repeats

    def half_width(n: int) -> float:
        return math.expm1(2.3646 * math.sqrt(2 * spread**2 / n))  # Student's t of 7 degrees of freedom

    assert half_width(number) <= 0.1501
    assert number == 8 or half_width(number - 1) > 0.1499


def test_what_leaves_more_open_is_added() -> None:
    half_width = math.log1p(0.15)
    by_seeds = Known(0.3, 8, 8, 0.01**2, 3, 3).until(half_width, 1000)
    assert by_seeds.repeats > 8 and by_seeds.timing_runs == 3
    by_runs = Known(1e-4, 8, 8, 0.1**2, 3, 3).until(half_width, 1000)
    assert by_runs.repeats == 8 and by_runs.timing_runs > 3
    assert all(one.half_width <= half_width + 1e-6 for one in (by_seeds, by_runs))
    # Student's t of two degrees of freedom, and nothing else of weight
    assert by_runs.timing_runs == math.ceil(2 * (4.3027 * 0.1 / half_width) ** 2)
    # what can never be enough is not added to, but for the cause that leaves most open
    capped = Known(0.5, 8, 8, 0.1**2, 3, 3).until(half_width, 20)
    assert (capped.repeats, capped.timing_runs) == (20, 3) and capped.half_width > half_width


COMPOSED = STUDY.replace("repeats:", "mode: composed\nwhole: {share: 0, at_least: 0}\nrepeats:")


def compose(sweep: SweepPlan, arm: str, samples: Sequence[int], between: float, runs: int = 3) -> None:
    """Record composed repeats of an arm, whose timing runs differ by so much."""
    freeze_sweep(sweep)
    items = sorted((i for i in sweep.planned if i.cell.arm == arm), key=lambda item: item.cell.repeat)
    for item, number in zip(items, samples, strict=False):
        parts = {"convergence": "0" * 10, "timing": "1" * 10, "timings": [f"{run}" * 10 for run in range(1, runs + 1)]}
        composed = {**parts, "between_share": between**2, "timing_pilot": 3}
        end = {"time_to_target_s": number / 100, "samples_to_target": number, "composed": composed}
        about = {"schema": 1, "id": item.cell.id, "slug": item.cell.slug, "status": "done", **end}
        (item.folder / "status.json").write_text(json.dumps(about))


def test_timing_runs_are_added_where_they_leave_more_open_than_repeats(tmp_path: Path) -> None:
    sweep = planned(tmp_path, COMPOSED)
    assert {(item.timing_runs, item.timing_pilot) for item in sweep.planned} == {(3, 3)}
    compose(sweep, "ring", [1000, 1010, 990, 1000], between=0.1)
    compose(sweep, "ddp", [1000, 1400, 800, 1300], between=0.001)
    grown = sweep.grown()
    assert grown is not None
    timed = {(item.cell.arm, item.cell.repeat): item.timing_runs for item in grown.planned}
    assert repeats(grown) == {"ddp": 9, "ring": 4}
    assert {timed["ring", repeat] for repeat in range(4)} == {9}  # at_most
    assert {timed["ddp", repeat] for repeat in range(9)} == {3}
    # the repeats of ring are put together anew, and of ddp the further ones alone
    assert {(item.cell.arm, item.cell.repeat >= 4) for item in grown.todo} == {("ring", False), ("ddp", True)}
    assert "ring takes 4 and 9 timing runs of the" in grown.notes[-1]
    assert "timing runs that it needs: ±" in grown.notes[-1]
    # made, they change nothing: the pilot's alone decide
    compose(grown, "ring", [1000, 1010, 990, 1000], between=0.1, runs=9)
    compose(grown, "ddp", [1000, 1400, 800, 1300, 900, 1000, 1100, 1200, 1300], between=0.001)
    again = planned(tmp_path, COMPOSED)
    assert repeats(again) == {"ddp": 9, "ring": 4} and not again.todo and again.grown() is None


def test_a_repeat_that_ran_whole_counts_by_its_samples_beside_composed_ones(tmp_path: Path) -> None:
    sweep = planned(tmp_path, COMPOSED)
    compose(sweep, "ring", [640, 640, 640, 640], between=0.001)
    (first,) = [item for item in sweep.planned if item.cell.arm == "ring" and item.cell.repeat == 0]
    finish(sweep, "ring", [77.0])  # of 640 samples too
    assert "composed" not in json.loads((first.folder / "status.json").read_text())
    assert "1 of 2 arms are known with the 4 of their pilot" in planned(tmp_path, COMPOSED).notes[-1]


def test_few_timing_runs_are_no_pilot(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, COMPOSED + "timing: {runs: 2}\n")
    (problem,) = refused.value.problems
    assert problem.line == len(COMPOSED.splitlines()) + 1 and "timing.runs: 2 say too little" in problem.message
    assert len(planned(tmp_path, STUDY + "timing: {runs: 2}\n").planned) == 8  # whole: it has no effect there


def test_keys_of_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY.replace("{until: 20 %, at_least: 4, at_most: 9}", "3"))
    sweep = plan_sweep([tmp_path / "study.yaml"], tmp_path / "results", ["repeats.until=10 %"])
    assert repeats(sweep) == {"ddp": 8, "ring": 8}
    sweep = plan_sweep([tmp_path / "study.yaml"], tmp_path / "results", ["repeats=5"])
    assert repeats(sweep) == {"ddp": 5, "ring": 5} and not sweep.needs


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("{until: 20}", "repeats.until"),
        ("{at_least: 4}", "repeats.until"),
        ("{until: 20 %, at_least: 2}", "repeats.at_least"),
        ("{until: 20 %, at_least: 9, at_most: 8}", "at_most is 8, which is below at_least, 9"),
        ("{until: 20 %, enough: 8}", "enough"),
    ],
)
def test_bad_ones_are_named(tmp_path: Path, written: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, STUDY.replace("{until: 20 %, at_least: 4, at_most: 9}", written))
    (problem,) = refused.value.problems
    assert said in problem.message and problem.line == 8


def test_without_a_target_there_is_no_ratio_to_know(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        planned(tmp_path, STUDY.replace("target: {accuracy: 0.9}\n", ""))
    assert "there is none; add 'target:'" in refused.value.problems[0].message
