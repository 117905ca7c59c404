"""Which cells the machine bounds, by the steps in which nobody communicates."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.records import CellFolder, iter_cells, read_json, write_json_atomic
from bwbench.records.cell_identity import recorded_identity
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.host_bound import OwnSteps, host_bound_note, is_host_bound
from bwbench.results.analysis.results import Reader, regrouped, results_of

RESULTS = Path(__file__).parents[4] / "results" / "published"
RECORDS = Path(__file__).parents[4] / "benchmarks" / "records"


def with_steps(
    folder: Path, step_time: object, step_s: float, compute_s: float = 0.01, **changes: object
) -> CellFolder:
    """The cell with a declared step and ``changes`` of its configuration, and with what its steps took."""
    cell, status = read_json(folder / "cell.json"), read_json(folder / "status.json")
    cell["config"] |= {"compute": {"threads": 1, "step_time": step_time}, **changes}
    cell_id = recorded_identity(cell["config"])
    folder = folder.rename(folder.with_name(f"{cell['slug']}-{cell_id}"))
    status["id"] = cell_id
    write_json_atomic(folder / "cell.json", {**cell, "id": cell_id})
    write_json_atomic(folder / "status.json", {**status, "step_median_s": step_s, "compute_median_s": compute_s})
    return CellFolder(folder)


@pytest.fixture
def cells(tmp_path: Path):
    folders = write_study(tmp_path, Study(arms=("single", "no-communication", "ring"), repeats=1))
    by_arm = {CellFolder(folder).cell.arm: folder for folder in folders}

    def cells(free_s: float, step_time: object = "40 ms", compute_s: float = 0.01) -> dict[str, CellFolder]:
        steps = {"single": 0.0403, "no-communication": free_s, "ring": 0.5}
        found = {arm: with_steps(by_arm[arm], step_time, step_s, compute_s) for arm, step_s in steps.items()}
        by_arm.update({arm: folder.path for arm, folder in found.items()})
        return found

    return cells


@pytest.mark.parametrize(("free_s", "bound"), [(0.0405, False), (0.0411, False), (0.0413, True), (0.048, True)])
def test_a_cell_is_bound_where_nobody_communicates_and_steps_are_longer_than_declared(cells, free_s, bound) -> None:
    found = cells(free_s)
    own = OwnSteps.of(found.values())
    assert own.row(found["ring"]) == {"own_step_s": free_s, "slowest_step_s": 0.04, "host_bound": bound}
    assert own.row(found["no-communication"])["host_bound"] is bound
    alone = {"own_step_s": 0.0403, "slowest_step_s": 0.04, "host_bound": False}
    assert own.row(found["single"]) == alone  # on the machine


def test_without_such_cells_only_computing_beyond_the_declared_step_tells(cells) -> None:
    found = cells(0.048)
    alone = OwnSteps.of([found["ring"]])
    assert alone.row(found["ring"]) == {"own_step_s": None, "slowest_step_s": 0.04, "host_bound": None}
    late = cells(0.048, compute_s=0.05)
    row = OwnSteps.of([late["ring"]]).row(late["ring"])
    assert row == {"own_step_s": 0.05, "slowest_step_s": 0.04, "host_bound": True}


def test_other_work_or_another_machine_tells_nothing(cells) -> None:
    found = cells(0.048)
    other = with_steps(found["no-communication"].path, "80 ms", 0.09)
    own = OwnSteps.of([found["single"], other, found["ring"]])
    assert own.row(found["ring"])["host_bound"] is None and own.row(other)["host_bound"] is True


def test_a_free_network_tells_of_cells_in_the_same_slow_motion_alone(cells) -> None:
    found = cells(0.048)
    slowed = with_steps(found["no-communication"].path, "40 ms", 0.0405, dilation=4.0)
    own = OwnSteps.of([slowed, found["ring"]])
    assert own.row(found["ring"])["host_bound"] is None and own.row(slowed)["host_bound"] is False
    ring = with_steps(found["ring"].path, "40 ms", 0.5, dilation=4.0)
    assert own.row(ring)["host_bound"] is False, "with more of it the machine has more time for a step"


def test_where_no_step_is_declared_none_is_exceeded(cells) -> None:
    found = cells(0.048, step_time=None)
    assert OwnSteps.of(found.values()).row(found["ring"])["host_bound"] is None
    assert is_host_bound(None, 0.04) is None


@pytest.mark.parametrize(("free_s", "bound"), [(0.0516, False), (0.0540, True)])
def test_where_steps_are_drawn_the_slowest_node_is_what_nobody_can_be_faster_than(cells, free_s, bound) -> None:
    """Of four nodes of 40 ms ± 30 % the slowest takes 51.5 ms or less in half of the steps."""
    found = cells(free_s, {"mean": "40 ms", "spread": 0.3})
    row = OwnSteps.of(found.values()).row(found["ring"])
    assert row["slowest_step_s"] == pytest.approx(0.0517, rel=0.01) and row["host_bound"] is bound
    assert OwnSteps.of(found.values()).row(found["single"])["slowest_step_s"] == pytest.approx(0.04, rel=0.05)


def test_what_a_trace_asks_for_is_in_no_record(cells) -> None:
    found = cells(0.05, {"trace": "/a/laptop.csv", "sha256": "0" * 64})
    assert OwnSteps.of(found.values()).row(found["ring"])["host_bound"] is None


def test_what_is_said_of_them(cells) -> None:
    found = cells(0.048)
    own = OwnSteps.of(found.values())
    rows = [cell_row(folder) | own.row(folder) for folder in found.values()]
    assert "2 of 3 cells" in host_bound_note(rows) and "20 % (median), 20 % at most" in host_bound_note(rows)
    assert "too long, by up to about as much" in host_bound_note(rows)
    assert host_bound_note(rows[:1]) is None and host_bound_note([]) is None


def test_of_the_published_cells_nearly_all_are_bound() -> None:
    """Four workers on two cores: a step of 40 ms takes 48 where nobody communicates."""
    folders = list(iter_cells(RESULTS / "async"))
    own = OwnSteps.of(folders)
    bound = [own.row(folder)["host_bound"] for folder in folders]
    assert (bound.count(True), bound.count(False)) == (24, 3)


def test_a_picture_of_one_link_knows_what_all_links_tell() -> None:
    """All runs without communication say more of a machine than those beside one link."""
    folders = list(iter_cells(RESULTS / "latency"))
    groups = regrouped(results_of(folders, Reader()), frozenset())
    assert len(groups) > 2 and all(group.own == OwnSteps.of(folders) for group in groups)
    step_s = {group.cells.loc[group.cells["arm"] == "ddp", "own_step_s"].iloc[0] for group in groups}
    assert len(step_s) == 1


def test_host_bound_cells_stand_in_no_crossover() -> None:
    """Of a published study two nodes, whose steps are as long as declared, and no four; of eight not all is known."""
    compared = compare_cells(iter_cells(RECORDS / "viable"), "ddp")
    assert {(row.condition["nodes"], row.condition["batch_size"]) for row in compared.crossovers} == {
        (2, 32), (2, 64), (8, 16)
    }  # fmt: skip
    bound = {(row.condition["nodes"], row.condition["batch_size"]): row.host_bound for row in compared.rows}
    assert bound[4, 32] and not bound[2, 32]
