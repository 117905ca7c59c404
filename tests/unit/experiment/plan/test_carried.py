"""What a machine carries, against what published cells took."""

from __future__ import annotations

import statistics
from collections import defaultdict
from pathlib import Path

import pytest

from bwbench.experiment.plan.carried import TOLERANCE, Load
from bwbench.records import iter_cells
from bwbench.results.analysis.cells import setting_of
from bwbench.results.analysis.host_bound import TOLERANCE as OF_RECORDS

RESULTS = Path(__file__).parents[4] / "results"


def test_one_tolerance_for_plans_and_records() -> None:
    assert TOLERANCE == OF_RECORDS


def test_nodes_with_processors_of_their_own_are_carried_and_more_are_not() -> None:
    load = Load(compute_s=0.012, step_s=0.04, threads=1, cores=2)
    assert load.is_carried(2) and not load.is_carried(4) and load.most_nodes == 2
    assert load.own_step_s(4) == pytest.approx(0.048, rel=0.01)
    assert Load(0.012, 0.04, 1, 16).most_nodes == 16
    assert Load(0.012, 0.04, 4, 16).most_nodes == 4
    assert Load(0.05, 0.04, 1, 2).most_nodes == 0


@pytest.mark.parametrize("nodes", [2, 4, 8])
def test_the_least_step_time_is_just_carried(nodes: int) -> None:
    load = Load(0.012, 0.04, 1, 2)
    least_s = load.least_step_s(nodes)
    assert Load(0.012, 1.001 * least_s, 1, 2).is_carried(nodes)
    assert not Load(0.012, 0.999 * least_s, 1, 2).is_carried(nodes)


def test_published_cells_in_which_nobody_communicates_took_about_as_long() -> None:
    """Within 3 %: 20 loads, of 2, 4 and 8 nodes, with steps of 40 to 250 ms."""
    alone: dict[str, float] = {}
    measured: dict[tuple[str, int, float], list[float]] = defaultdict(list)
    for folder in iter_cells(RESULTS):
        status, setting = folder.status, setting_of(folder.cell.config)
        if status is None or status.step_median_s is None or setting.step_time_s is None:
            continue
        about = f"{folder.cell.experiment} {setting.model} {setting.batch_size} {setting.accumulate}"
        if setting.algorithm == "single":
            alone[about] = status.compute_median_s or 0.0
        elif setting.algorithm == "no-communication":
            measured[about, setting.nodes, setting.step_time_s].append(status.step_median_s)
    checked = 0
    for (about, nodes, step_s), steps_s in measured.items():
        if about in alone:
            predicted_s = Load(alone[about], step_s, 1, 2).own_step_s(nodes)
            assert predicted_s == pytest.approx(statistics.median(steps_s), rel=0.03), (about, nodes, step_s)
            checked += 1
    assert checked > 8
