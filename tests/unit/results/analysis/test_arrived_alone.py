"""Cells that were at their target before their nodes had sent anything: which they are, and wherever that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.cli.cell_text import cell_text, shown
from bwbench.cli.comparison_text import comparison_notes
from bwbench.cli.outcome_table import outcome_notes
from bwbench.cli.result_commands import status
from bwbench.records import CellFolder, iter_cells, read_json, write_json_atomic
from bwbench.results.analysis.arrived_alone import arrived_alone, arrived_alone_note
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.export import export_cells
from bwbench.results.analysis.results import load_results
from bwbench.results.page.payload import build_payload
from bwbench.results.section import write_section

RESULTS = Path(__file__).parents[4] / "results" / "published"
SENT_NOTHING = {"payload_bytes": 0, "payload_bytes_to_target": 0}
ROW = {"role": "method", "nodes": 4, "samples_to_target": 4608, "payload_bytes_to_target": 0}


@pytest.mark.parametrize(
    ("changes", "alone"),
    [
        ({}, True),
        ({"payload_bytes_to_target": 110_040}, False),
        ({"payload_bytes_to_target": None}, False),  # not recorded
        ({"samples_to_target": None}, False),  # not reached
        ({"samples_to_target": 0}, False),  # met before the first step: nobody could have sent anything
        ({"role": "reference", "nodes": 1}, False),
        ({"role": "headroom"}, False),
        ({"nodes": 1}, False),
    ],
)
def test_which_cells_arrived_alone(changes: dict[str, object], alone: bool) -> None:
    assert arrived_alone({**ROW, **changes}) is alone


def test_what_is_said_names_each_arm_and_how_many_of_its_cells() -> None:
    rows = [{"arm": "diloco(period=50)", "arrived_alone": repeat == 0} for repeat in range(3)]
    rows += [{"arm": arm, "arrived_alone": arm == "local-sgd"} for arm in ("ddp", "local-sgd")]
    note = arrived_alone_note(rows, {"diloco(period=50)": "diloco"}) or ""
    assert "sent anything: diloco in 1 of 3 cells, local-sgd in 1 of 1 cells." in note and "ddp" not in note
    assert arrived_alone_note(rows[1:4]) is None and arrived_alone_note([]) is None


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Of the three cells of ``ring`` the first had sent nothing when it was at the target."""
    for folder in write_study(tmp_path, Study(arms=("single", "no-communication", "ddp", "ring"), repeats=3)):
        cell = CellFolder(folder).cell
        if cell.arm == "ring" and cell.repeat == 0:
            recorded = read_json(folder / "status.json")
            write_json_atomic(folder / "status.json", {**recorded, **SENT_NOTHING})
    return tmp_path / "study"


def test_it_is_said_wherever_the_time_stands(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cells = list(iter_cells(study))
    assert [cell.cell.arm for cell in cells if cell_row(cell)["arrived_alone"]] == ["ring"]
    (group,) = load_results(study)
    (of_page,) = build_payload(cells, "study")["groups"]  # type: ignore[misc, attr-defined]
    status(study)
    for said in (
        list(outcome_notes(cells, {})),
        comparison_notes(compare_cells(cells, "ddp"), cells),
        group.notes,
        of_page["notes"],
        [write_section([group], "markdown")],
        [capsys.readouterr().err],
    ):
        (text,) = [text for text in said if "before its nodes had sent anything" in text]
        assert "ring in 1 of 3 cells" in text and text.count("before its nodes had sent anything") == 1
    alone = next(cell.path for cell in cells if cell_row(cell)["arrived_alone"])
    assert any("its nodes had sent nothing until then" in line for line in cell_text(shown(alone)))
    assert [row["arrived_alone"] for row in export_cells(cells)].count(True) == 1


def test_a_run_that_went_on_is_judged_by_what_it_had_sent_at_the_arrival(study: Path) -> None:
    """Its whole run sent something, the way to its target did not."""
    folder = next(cell.path for cell in iter_cells(study) if cell_row(cell)["arrived_alone"])
    recorded = read_json(folder / "status.json")
    went_on = {"samples": recorded["samples"] + 1280, "payload_bytes": 10**6}
    write_json_atomic(folder / "status.json", {**recorded, **went_on})
    assert cell_row(CellFolder(folder))["arrived_alone"]
    write_json_atomic(folder / "status.json", {**recorded, **went_on, "payload_bytes_to_target": 4})
    assert not cell_row(CellFolder(folder))["arrived_alone"]


def test_no_published_cell_arrived_alone() -> None:
    found = [cell.path.name for cell in iter_cells(RESULTS / "worth-it") if cell_row(cell)["arrived_alone"]]
    assert found == []
