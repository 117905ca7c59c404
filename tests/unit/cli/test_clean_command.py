"""``bwbench clean DIR``: what it removes, and what it has to leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fixtures_records import Study, cell_of

from bwbench.cli.machine_commands import clean
from bwbench.network.probe import machine
from bwbench.records.lock import claimed


@pytest.fixture(autouse=True)
def no_leftovers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of this machine are none of a test's business."""
    monkeypatch.setattr(machine, "find_leftovers", list)


def cell(results: Path, name: str, status: str | None, attempts: int = 2) -> Path:
    folder = results / "study" / name
    for number in range(1, attempts + 1):
        (folder / f"attempt-{number}").mkdir(parents=True)
    content = cell_of(Study(), "ring", 10.0, 0)
    (folder / "cell.json").write_text(json.dumps(content))
    (folder / ".status.json.7.part").write_text("{")
    if status is not None:
        (folder / "status.json").write_text(json.dumps({**content, "slug": name, "status": status}))
    return folder


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"cell.json", "status.json"}


def test_unfinished_attempts_and_partial_files_go_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    killed, done, failed = (
        cell(tmp_path, name, status) for name, status in (("k", None), ("d", "done"), ("f", "failed"))
    )
    clean(tmp_path, dry_run=True)
    would = capsys.readouterr()
    assert len(left(killed)) == 3 and "6 leftover(s) would be removed" in would.err
    clean(tmp_path)
    assert capsys.readouterr().out == would.out
    assert (left(killed), left(done), left(failed)) == (set(), {"attempt-2"}, {"attempt-1", "attempt-2"})


def test_what_training_can_go_on_from_stays(tmp_path: Path) -> None:
    killed = cell(tmp_path, "k", None)
    (killed / "attempt-2" / "checkpoint-30").mkdir()
    clean(tmp_path)
    assert left(killed) == {"attempt-2"}


def test_a_cell_that_is_running_is_left_alone(tmp_path: Path) -> None:
    running = cell(tmp_path, "r", None)
    with claimed(running):
        clean(tmp_path)
        assert left(running) == {"attempt-1", "attempt-2", ".status.json.7.part", ".claim"}
    clean(tmp_path)
    assert left(running) == set()
