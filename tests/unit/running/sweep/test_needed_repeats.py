"""``repeats: {until: …}``: a pilot says how many repeats an arm needs, and nothing else does."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config.experiment import UntilKnown
from bwbench.records import cell_at
from bwbench.running.sweep import SweepPlan, freeze_sweep, plan_sweep
from bwbench.running.sweep.needed_repeats import repeats_for

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
    asked = UntilKnown(until=0.2, at_least=4, at_most=9)
    wanted = repeats_for(statistics.stdev(map(math.log, WIDE)), asked)
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
    asked = UntilKnown(until=0.15, at_least=8, at_most=1000)
    number = repeats_for(spread, asked)

    def half_width(n: int) -> float:
        return math.expm1(2.3646 * math.sqrt(2 * spread**2 / n))  # Student's t of 7 degrees of freedom

    assert half_width(number) <= 0.1501
    assert number == 8 or half_width(number - 1) > 0.1499


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
