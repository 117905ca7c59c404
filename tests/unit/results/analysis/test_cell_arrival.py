"""When a cell arrived, as its records say it: by the fit, at its first crossing, or not known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError
from bwbench.records import CellFolder, iter_cells
from bwbench.results.analysis.arrival import CENSORED, FIRST_CROSSING, FIT, UNKNOWN, clock_at
from bwbench.results.analysis.cell_arrival import (
    arrival_notes,
    arrival_of_cell,
    asked_target,
    at_target,
    kept_curve,
    target_at,
)
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.statistics import arrival_of

PUBLISHED = Path(__file__).parents[4] / "results" / "published"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> list[CellFolder]:
    """Cells that ended at their target."""
    root = tmp_path_factory.mktemp("results")
    write_study(root, Study(arms=("ring", "ddp"), bandwidths_mbps=(10.0,)))
    return list(iter_cells(root))


@pytest.fixture(scope="module")
def to_budget() -> list[CellFolder]:
    """Published cells that went on to 60,000 samples."""
    return list(iter_cells(PUBLISHED / "precision"))


def test_a_run_that_ended_at_its_target_keeps_its_first_crossing(stopped: list[CellFolder]) -> None:
    for folder in stopped:
        found, status = arrival_of_cell(folder), folder.status
        assert status is not None and found.arrival_kind == FIRST_CROSSING
        assert found.time_to_target_s == found.first_crossing_s == status.time_to_target_s
        assert found.samples_to_target == found.first_crossing_samples == status.samples_to_target
    (note,) = arrival_notes(stopped)
    assert note.startswith("‡ First crossing, of 6 of 6 cells: training ended at the first evaluation that met")


def test_a_run_that_went_on_too_short_a_while_keeps_it_too_and_is_not_said_to_have_ended_there(tmp_path: Path) -> None:
    extra, by_limit = {"stop": "limit"}, {("ring", 0): ("done", "samples")}
    write_study(tmp_path, Study(arms=("ring", "ddp"), repeats=1, extra=extra, statuses=by_limit))
    (file,) = tmp_path.glob("*/ring-*/status.json")
    status = json.loads(file.read_text())
    file.write_text(json.dumps({**status, "samples": status["samples"] + 128}))
    went_on = [folder for folder in iter_cells(tmp_path) if folder.cell.arm == "ring"]
    assert arrival_of_cell(went_on[0]).arrival_kind == FIRST_CROSSING
    (note,) = arrival_notes(went_on)
    assert note.startswith("‡ First crossing, of 1 of 1 cells: too few evaluations follow the first one that met")
    ended, short = arrival_notes(iter_cells(tmp_path))
    assert "of 1 of 2 cells: training ended" in ended and "of 1 of 2 cells: too few" in short


def test_a_run_to_its_budget_arrives_where_the_fit_crosses(to_budget: list[CellFolder]) -> None:
    kinds = {folder.cell.arm: set[str | None]() for folder in to_budget}
    for folder in to_budget:
        found, status = arrival_of_cell(folder), folder.status
        assert status is not None
        kinds[folder.cell.arm].add(found.arrival_kind)
        assert found.first_crossing_s == status.time_to_target_s
        if found.arrival_kind == FIT:
            there_s = clock_at(kept_curve(folder), found.samples_to_target or 0.0)
            assert found.time_to_target_s == pytest.approx(there_s, rel=1e-4)  # samples are whole
            assert (found.samples_to_target or 0) <= 40_000
            assert 0 < (found.payload_bytes_to_target or 0) < (status.payload_bytes or 0)
            arrival = arrival_of(cell_row(folder))
            assert arrival is not None and arrival.grid_s == 0.0  # it is interpolated
        else:
            assert found.arrival_kind == CENSORED and found.time_to_target_s is None
            assert found.censored_at_s == pytest.approx(clock_at(kept_curve(folder), 40_000))
    assert kinds["bytegrad"] == {FIT}
    assert kinds["top-k"] == {CENSORED}
    assert not arrival_notes(to_budget)


def test_another_target_may_be_asked_where_the_curve_goes_on_behind_it(stopped: list[CellFolder]) -> None:
    own = target_at(stopped[0])
    assert own is not None
    lower = at_target(stopped, (own[0], own[1] - 0.1))
    for before, folder in zip(stopped, lower, strict=True):
        found, row = arrival_of_cell(folder), cell_row(folder)
        assert found.arrival_kind == FIT
        assert 0 < (found.time_to_target_s or 0.0) < (arrival_of_cell(before).time_to_target_s or 0.0)
        assert row["target_value"] == own[1] - 0.1 and row["arrival_kind"] == FIT
    assert not arrival_notes(lower)


def test_a_higher_target_is_unknown_until_run_again(stopped: list[CellFolder]) -> None:
    higher = at_target(stopped, ("accuracy", 0.999))
    assert {arrival_of_cell(folder).arrival_kind for folder in higher} == {UNKNOWN}
    (note,) = arrival_notes(higher)
    assert note.startswith("Unknown until run again")
    with pytest.raises(ConfigError, match="unknown until run again"):
        compare_cells(higher, "ddp")


def test_the_own_target_asked_for_changes_nothing(stopped: list[CellFolder]) -> None:
    asked = at_target(stopped, target_at(stopped[0]))
    assert [arrival_of_cell(folder) for folder in asked] == [arrival_of_cell(folder) for folder in stopped]


def test_events_that_cannot_be_read_leave_what_status_json_says(tmp_path: Path) -> None:
    (path,) = write_study(tmp_path, Study(arms=("ring",), repeats=1, bandwidths_mbps=(10.0,)))
    (path / "attempt-1" / "rank0.jsonl").write_text("{broken\n{}\n")
    (folder,) = iter_cells(tmp_path)
    assert arrival_of_cell(folder).arrival_kind == FIRST_CROSSING
    (asked,) = at_target([folder], ("accuracy", 0.3))
    assert arrival_of_cell(asked).arrival_kind == UNKNOWN


def test_cells_without_a_target_or_an_end_have_no_arrival(tmp_path: Path) -> None:
    (path,) = write_study(tmp_path, Study(arms=("ring",), repeats=1, bandwidths_mbps=(10.0,)))
    status = json.loads((path / "status.json").read_text())
    (path / "status.json").unlink()
    (folder,) = iter_cells(tmp_path)
    assert arrival_of_cell(folder).arrival_kind is None
    (path / "status.json").write_text(json.dumps({**status, "status": "failed"}))
    (asked,) = at_target(iter_cells(tmp_path), ("accuracy", 0.3))
    assert arrival_of_cell(asked).arrival_kind is None


@pytest.mark.parametrize("text", ["accuracy", "0.87", "accuracy=", "=0.87", "accuracy=high", "accuracy=nan", ""])
def test_a_target_is_a_metric_and_a_number(text: str) -> None:
    assert asked_target("accuracy=0.87") == ("accuracy", 0.87)
    with pytest.raises(ConfigError, match="METRIC=VALUE"):
        asked_target(text)
