"""Ids of what is read: a configuration under another's id is one unreadable cell, and nothing is imported for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base import registry
from bwbench.base.errors import ForeignCellError
from bwbench.base.plain_data import JsonObject
from bwbench.cli.result_commands import TableFormat, export, merge, publish, show, status
from bwbench.cli.verify_command import verify
from bwbench.records import CellFolder, read_json, readable
from bwbench.records.cell_identity import id_problem, recorded_identity, unchecked_id


@pytest.fixture
def cell(tmp_path: Path) -> Path:
    return write_study(tmp_path / "results", Study(arms=("ring", "ddp"), repeats=1))[0]


def change(cell: Path, **config: object) -> JsonObject:
    content = json.loads((cell / "cell.json").read_text())
    content["config"].update(config)
    (cell / "cell.json").write_text(json.dumps(content))
    return content


def test_another_configuration_under_the_id_is_one_unreadable_cell(cell: Path) -> None:
    change(cell, batch_size=64)
    assert isinstance(problem := CellFolder(cell).problem, ForeignCellError)
    assert "config: gives the id" in str(problem) and str(cell) in str(problem)
    good, refused = readable(CellFolder(path) for path in sorted(cell.parent.iterdir()))
    assert len(good) == 1 and len(refused) == 1


@pytest.mark.parametrize("name", ["nodes", "model", "link", "compression"])
def test_a_configuration_that_lacks_something_is_refused(cell: Path, name: str) -> None:
    content = json.loads((cell / "cell.json").read_text())
    del content["config"][name]
    (cell / "cell.json").write_text(json.dumps(content))
    assert CellFolder(cell).problem is not None


def test_the_folder_and_the_status_have_to_be_of_the_same_cell(cell: Path) -> None:
    other = cell.with_name("ring-0123456789")
    cell.rename(other)
    assert "in the folder of cell 0123456789" in str(CellFolder(other).problem)
    other.rename(cell)
    (cell / "status.json").write_text(json.dumps({**read_json(cell / "status.json"), "id": "0123456789"}))
    assert "where cell.json says" in str(CellFolder(cell).problem)


def test_what_cannot_be_told_is_not_refused(cell: Path) -> None:
    content = change(cell, plugins=["/nowhere/mine.py"])["config"]
    assert "plugins" in str(unchecked_id(content)) and CellFolder(cell).problem is None
    content = change(cell, plugins=[], of_a_later_version=1)["config"]
    assert "of_a_later_version" in str(unchecked_id(content)) and CellFolder(cell).problem is None


def test_components_of_other_packages_are_not_imported_for_a_record(
    cell: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = change(cell, model={"name": "from-elsewhere"})["config"]
    monkeypatch.setattr(registry.Registry, "load", lambda self, name: pytest.fail(f"{name} is imported"))
    assert id_problem("0123456789", content) is None
    assert id_problem(recorded_identity(content), content) is None


@pytest.mark.parametrize("odd", [None, 7, [], "x", {"name": []}, {"name": "sgd", "lr": float("nan")}])
@pytest.mark.parametrize("name", ["link", "model", "compression", "optimizer", "dataset"])
def test_odd_configurations_raise_nothing(cell: Path, name: str, odd: object) -> None:
    content = json.loads((cell / "cell.json").read_text())["config"]
    assert id_problem("0123456789", {**content, name: odd}) != ""


def test_no_command_that_reads_imports_a_plugin_that_a_record_names(cell: Path, tmp_path: Path) -> None:
    marker, plugin = tmp_path / "imported", tmp_path / "evil.py"
    plugin.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n")
    change(cell, plugins=[str(plugin)])
    status(tmp_path / "results")
    status(tmp_path / "results", json=True, spent=True)
    show(str(cell))
    export(tmp_path / "results", TableFormat.csv, tmp_path / "cells.csv")
    merge([tmp_path / "results"], tmp_path / "into")
    publish(tmp_path / "into")
    verify([tmp_path / "results", tmp_path / "into"])
    assert not marker.exists()


def test_a_queue_that_was_named_when_it_was_the_default_is_read_under_the_id_of_its_time() -> None:
    """It counted then; by now it has the id of records that name none."""
    link: JsonObject = {"bandwidth": "10 Mbit/s", "latency": "2.5 ms", "queue": "1 bdp"}
    content: JsonObject = {
        "nodes": 2, "link": link, "model": {"name": "cnn"}, "dataset": {"name": "digits"}, "batch_size": 32,
        "algorithm": {"name": "every-step"}, "collective": {"name": "ring"}, "compression": [{"name": "none"}],
        "optimizer": {"name": "sgd", "lr": 0.1}, "seed": 0, "plugins": [],
    }  # fmt: skip
    unnamed: JsonObject = {**content, "link": {**link, "queue": None}}
    assert recorded_identity(content) == recorded_identity(unnamed) == "5bb46418b4"
    assert id_problem("e6e1bc6170", content) is None and id_problem("e6e1bc6170", unnamed) is not None
