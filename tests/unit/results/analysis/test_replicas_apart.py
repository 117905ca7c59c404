"""A cell whose nodes ended with unlike replicas against the promise of its method is named wherever its time stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fixtures_records import Study, write_study

from bwbench.cli.cell_table import print_cells, print_cells_as_json
from bwbench.cli.comparison_text import comparison_notes
from bwbench.cli.outcome_table import outcome_notes
from bwbench.methods.roles import replicas_equal_by_name
from bwbench.records import CellFolder, iter_cells, read_json, write_json_atomic
from bwbench.records.own_and_published import taken
from bwbench.results.analysis.cells import cell_row
from bwbench.results.analysis.comparison import compare_cells
from bwbench.results.analysis.replicas_apart import replicas_apart, replicas_apart_note
from bwbench.results.analysis.results import Reader, results_of
from bwbench.results.verify import verify

BEGINS = "Broken: ring-fp16 in 2 of 2 cells ended with unlike replicas"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two arms, one of which ended apart on its second node."""
    for folder in write_study(tmp_path, Study("apart", arms=("ddp", "ring-fp16"), repeats=2)):
        if folder.name.startswith("ring-fp16"):
            end_apart(folder)
    return tmp_path


def end_apart(folder: Path) -> None:
    events = folder / "attempt-1" / "rank1.jsonl"
    *lines, last = events.read_text().splitlines()
    events.write_text("\n".join([*lines, json.dumps({**json.loads(last), "replica_sha256": "cd" * 32})]) + "\n")
    edit(folder / "status.json", replicas_identical=False)


def edit(file: Path, **fields: object) -> None:
    write_json_atomic(file, {**read_json(file), **fields})


def test_it_is_named_below_tables_and_pictures(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (group,) = results_of(iter_cells(results), Reader())
    for notes in (
        group.notes,
        comparison_notes(compare_cells(group.folders, "ddp"), group.folders),
        list(outcome_notes(group.done, {})),
    ):
        assert [note for note in notes if note.startswith(BEGINS)], notes
    print_cells(taken(results))
    assert f"note: {BEGINS}" in capsys.readouterr().err
    print_cells_as_json(taken(results))
    listed = json.loads(capsys.readouterr().out)["cells"]
    assert {(one["arm"], one["replicas_apart"]) for one in listed} == {("ddp", False), ("ring-fp16", True)}


def test_verify_finds_it(results: Path) -> None:
    found = [finding.text for one in verify(taken(results)) for finding in one.findings]
    assert len(found) == 2
    assert found[0].startswith("replicas_identical is false, and its method promises the same bits on all nodes")


@pytest.mark.parametrize(("algorithm", "collective", "promised"), [
    ("every-step", "ring", "after every step"),
    ("qadam", "scatter-gather", "after every step"),
    ("no-communication", "none", "after every step"),
    ("local-sgd", "ring", "after a round"),
    ("async", "ring", "never"),
    ("every-step", "gossip-pair", "never"),
    ("every-step", "of-a-plugin", None),
])  # fmt: skip
def test_what_is_promised_is_what_components_declare(algorithm: str, collective: str, promised: str | None) -> None:
    assert replicas_equal_by_name(algorithm, collective) == promised
    row: dict[str, Any] = {"algorithm": algorithm, "collective": collective, "replicas_identical": False}
    assert replicas_apart(row, None) == (promised == "after every step")


def test_what_a_cell_records_counts_whatever_its_method_is_called(results: Path) -> None:
    """A plugin's method is not known where its records are read."""
    folder = next(path for path in (results / "apart").iterdir() if path.name.startswith("ring-fp16"))
    about = cell_row(CellFolder(folder))
    assert about["replicas_apart"] is True
    unknown = {**about, "algorithm": "of-a-plugin"}
    assert not replicas_apart(unknown, None)
    assert replicas_apart(unknown, "after every step") and not replicas_apart(unknown, "after a round")
    assert not replicas_apart({**about, "replicas_identical": None}, "after every step")


def test_nothing_is_said_where_all_ended_alike(tmp_path: Path) -> None:
    write_study(tmp_path, Study("alike", arms=("ddp", "single"), repeats=1))
    rows = [cell_row(folder) for folder in iter_cells(tmp_path)]
    assert replicas_apart_note(rows) is None
    assert replicas_apart_note([{"arm": "x", "replicas_apart": True}], {"x": "y"}).startswith("Broken: y in 1 of 1")  # type: ignore[union-attr]
