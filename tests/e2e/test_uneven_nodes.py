"""Nodes whose step times differ, over a real (emulated) link: what the others wait for them is waiting for peers."""

from __future__ import annotations

import statistics

import pytest

from bwbench.base.step_time import SteadyStepTime
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.trial import RankStep, step_ledgers
from tests.e2e.program import TINY, run

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

STEP_S, SLOW_S, STEPS, WARM = 0.04, 0.1, 60, 2
EXPERIMENT = (
    TINY.replace("nodes: 2", "nodes: 3")
    .replace("every: 640", "every: 5760")
    .replace("samples: 1280", f"samples: {96 * STEPS}")
    .replace("target: {accuracy: 0.99}\n", "")
    + """
algorithm: ring
matrix:
  compute:
    - {step_time: 40 ms, overrides: {1: {step_time: 100 ms}}}
    - {step_time: {mean: 40 ms, spread: 40 %}}
"""
)


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CellFolder]:
    folder = tmp_path_factory.mktemp("uneven")
    (folder / "tiny.yaml").write_text(EXPERIMENT)
    result = run("run", "tiny.yaml", cwd=folder, BWBENCH_SHARE_MACHINE="1")
    assert result.returncode == 0, result.stderr
    found = list(iter_cells(folder / "results"))
    return {"slow" if "overrides" in str(cell.cell.config["compute"]) else "drawn": cell for cell in found}


def by_rank(cell: CellFolder) -> dict[int, list[RankStep]]:
    steps = [step for step in step_ledgers(cell.events()) if step.step > WARM]
    return {rank: [step for step in steps if step.rank == rank] for rank in range(3)}


def middle(steps: list[RankStep], part: str) -> float:
    return statistics.median(getattr(step, part) for step in steps)


def test_others_wait_for_a_slow_node_as_long_as_it_is_slower(cells: dict[str, CellFolder]) -> None:
    steps = by_rank(cells["slow"])
    for rank in (0, 2):
        assert middle(steps[rank], "peers_s") == pytest.approx(SLOW_S - STEP_S, abs=0.01)
        assert middle(steps[rank], "pad_s") + middle(steps[rank], "compute_s") == pytest.approx(STEP_S, abs=0.01)
    assert middle(steps[1], "peers_s") < 0.005 and middle(steps[1], "pad_s") == pytest.approx(SLOW_S, abs=0.01)
    links_s = [middle(of_rank, "link_s") for of_rank in steps.values()]
    assert max(links_s) < 0.03, "waiting for a node is not waiting for the link"


def test_a_step_takes_as_long_as_the_slowest_of_what_was_drawn(cells: dict[str, CellFolder]) -> None:
    declared, steps = SteadyStepTime(STEP_S, 0.4), by_rank(cells["drawn"])
    asked_s = {rank: [declared.drawn_s(0, rank, step.step) for step in steps[rank]] for rank in steps}
    for rank, of_rank in steps.items():
        spent_s = [step.pad_s + step.compute_s for step in of_rank]
        off_s = [spent - asked for spent, asked in zip(spent_s, asked_s[rank], strict=True)]
        assert abs(statistics.median(off_s)) < 0.004
    slowest_s = [max(asked) for asked in zip(*asked_s.values(), strict=True)]
    taken_s = [max(one.duration_s for one in same) for same in zip(*steps.values(), strict=True)]
    over_s = [taken - slowest for taken, slowest in zip(taken_s, slowest_s, strict=True)]
    assert 0 < statistics.median(over_s) < 0.03, "the rest is the link"
    assert statistics.correlation(taken_s, slowest_s) > 0.8
    waits_s = statistics.fmean(step.peers_s for of_rank in steps.values() for step in of_rank)
    assert waits_s == pytest.approx(statistics.fmean(slowest_s) - STEP_S, rel=0.35)
