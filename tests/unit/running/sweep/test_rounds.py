"""In which order the runs of a composed sweep are made."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

from bwbench.experiment.plan.assess import PlannedCell
from bwbench.experiment.plan.described_models import Description
from bwbench.records import write_record
from bwbench.records.schema import Status
from bwbench.running.sweep import SweepPlan, plan_sweep
from bwbench.running.sweep.rounds import in_rounds, only_part

EXPERIMENT = """
name: study
nodes: 4
link: {bandwidth: 10 Mbit/s, latency: 1 ms}
model: logistic
dataset: digits
evaluate: {every: 2048 samples}
target: {accuracy: 0.9}
limit: {samples: 50000}
mode: composed
whole: {at_least: 0, share: 0}
matrix:
  link.bandwidth: [10 Mbit/s, 50 Mbit/s]
  algorithm: [ring, local-sgd, single]
"""
CELLS, TIMED = 4, 4  # composed ones of a repeat, and pairs of link and arm


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    known = Description(650, ((10, 64), (10,)), 0.001)
    for module in ("plan.composing", "plan.estimate"):
        monkeypatch.setattr(f"bwbench.experiment.{module}.describe", lambda configs: [known] * len(configs))
    monkeypatch.setattr("bwbench.running.sweep.rounds.describe", lambda configs: [known] * len(configs))

    def planned(*overrides: str) -> SweepPlan:
        file = tmp_path / "study.yaml"
        file.write_text(EXPERIMENT)
        return plan_sweep([file], tmp_path / "results", overrides)

    return planned


@pytest.fixture
def ordered(planned):
    def ordered(*overrides: str) -> list[PlannedCell]:
        return in_rounds(planned(*overrides).todo, 0)

    return ordered


def write_done(items: Iterable[PlannedCell]) -> None:
    for item in items:
        item.folder.mkdir(parents=True)
        write_record(item.folder / "status.json", Status(id=item.cell.id, slug=item.cell.slug, status="done"))


def test_the_timing_runs_of_a_cell_lie_in_rounds_between_which_something_else_runs(ordered) -> None:
    items = ordered("repeats=3")
    rounds = [item.cell.repeat for item in items if item.part == "timing"]
    assert rounds == sorted(rounds) == [run for run in range(3) for _ in range(TIMED)]
    assert len({item.cell.id for item in items if item.part == "timing"}) == 3 * TIMED
    first = [number for number, item in enumerate(items) if item.part == "timing" and item.cell.repeat == 1][0]
    between = [item.part for item in items[:first] if item.part != "timing"]
    assert "convergence" in between and "" in between  # single runs whole
    orders: dict[int, list[str]] = defaultdict(list)
    for item in items:
        if item.part == "timing":
            orders[item.cell.repeat].append(item.cell.slug.partition("-timing")[0])
    assert (
        len({tuple(names) for names in orders.values()}) > 1 and len({tuple(sorted(n)) for n in orders.values()}) == 1
    )


@pytest.mark.parametrize(("repeats", "runs"), [(1, 1), (1, 3), (2, 3), (5, 2)])
def test_every_cell_comes_once_and_behind_all_that_it_needs(ordered, repeats: int, runs: int) -> None:
    items = ordered(f"repeats={repeats}", f"timing.runs={runs}")
    cells = [item for item in items if not item.part]
    assert len(cells) == len({item.cell.id for item in cells}) == repeats * (CELLS + 1)
    assert sum(item.part == "timing" for item in items) == TIMED * runs
    assert sum(item.part == "convergence" for item in items) == 2 * repeats  # of all links
    timing = [number for number, item in enumerate(items) if item.part == "timing"]
    composed = [number for number, item in enumerate(items) if not item.part and item.way == "composed"]
    assert max(timing) < min(composed)


def test_what_is_done_is_not_timed_again(ordered) -> None:
    part = next(item for item in ordered() if item.part == "timing")
    part.folder.mkdir(parents=True)
    write_record(part.folder / "status.json", Status(id=part.cell.id, slug=part.cell.slug, status="done", attempt=1))
    assert part.cell.id not in {item.cell.id for item in ordered()}
    write_record(part.folder / "status.json", Status(id=part.cell.id, slug=part.cell.slug, status="invalid", attempt=1))
    (again,) = (item for item in ordered() if item.cell.id == part.cell.id)
    assert again.attempt == 1


def test_a_sweep_without_composed_cells_stays_as_it_is(ordered) -> None:
    assert not any(item.part for item in ordered("mode=full"))


def test_runs_of_one_kind_come_by_themselves(planned) -> None:
    sweep = planned("repeats=2")
    convergence, timing = only_part(sweep, "convergence"), only_part(sweep, "timing")
    assert [item.part for item in convergence.todo] == ["convergence"] * 4
    assert sum(item.part == "timing" for item in timing.todo) == 3 * TIMED
    whole = [item.cell.arm for item in timing.todo if not item.part]
    assert whole == ["single"] * 2  # its times count, and no link concerns it
    assert convergence.planned == timing.planned == sweep.planned and convergence.grown() is None
    assert convergence.foreseen == [*sweep.planned, *convergence.selected]


def test_what_is_left_of_one_kind_is_put_together_by_the_plain_command(planned) -> None:
    for part in ("convergence", "timing"):
        write_done(only_part(planned(), part).todo)
        assert not only_part(planned(), part).todo
    assert {item.way for item in in_rounds(planned().todo, 0)} == {"composed"}


def test_a_run_of_one_kind_that_ended_undone_waits_for_a_retry(planned) -> None:
    first, *others = only_part(planned(), "convergence").todo
    first.folder.mkdir(parents=True)
    undone = Status(id=first.cell.id, slug=first.cell.slug, status="diverged", attempt=1)
    write_record(first.folder / "status.json", undone)
    sweep = only_part(planned(), "convergence")
    assert [item.cell.id for item in sweep.todo] == [item.cell.id for item in others]
    (waiting,) = (item for item in sweep.selected if not item.runs)
    assert waiting.cell.id == first.cell.id and waiting.status == "diverged"


def test_cells_that_are_made_both_ways_wait_for_their_convergence_runs(planned) -> None:
    overrides = ["whole={share: 1}"]
    waiting = only_part(planned(*overrides), "timing")
    assert {item.part for item in waiting.todo if item.way != "whole"} == set()
    write_done(only_part(planned(*overrides), "convergence").todo)
    ready = only_part(planned(*overrides), "timing")
    assert sum(item.way == "checked" for item in ready.todo) == CELLS
    assert not any(item.part == "convergence" for item in ready.todo)


def test_virtual_nodes_belong_to_convergence_whatever_they_are_for(planned) -> None:
    overrides = ["link=unshaped", "matrix={algorithm: [ring, local-sgd]}", "compute={virtual: true}", "mode=full"]
    sweep = planned(*overrides)
    assert list(only_part(sweep, "convergence").selected) == sweep.todo
    assert not only_part(sweep, "timing").selected
