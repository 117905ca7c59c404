"""Which checkpoint a cell goes on from, and which it does not touch."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fixtures_checkpoints import NOW, RANKS, take

from bwbench.records.checkpoint import (
    delete_checkpoints,
    delete_unfinished,
    find_checkpoint,
    has_checkpoint,
    unfinished,
)
from bwbench.records.schema import Carried, Environment


def found(cell: Path, environment: dict[str, Any] = NOW, num_ranks: int = 2) -> tuple[int | None, str | None]:
    checkpoint, refused = find_checkpoint(cell, num_ranks, Environment.model_validate(environment))
    return checkpoint.step if checkpoint else None, refused


def test_nothing_there(tmp_path: Path) -> None:
    assert found(tmp_path) == (None, None)
    (tmp_path / "attempt-1").mkdir()
    assert found(tmp_path) == found(tmp_path / "never planned") == (None, None)


def test_the_newest_one_counts_and_its_records_begin_the_next_attempt(tmp_path: Path) -> None:
    take(tmp_path, 2, 20)
    take(tmp_path, 10, 100)
    checkpoint, refused = find_checkpoint(tmp_path, 2, Environment.model_validate(NOW))
    assert checkpoint is not None and refused is None
    assert (checkpoint.attempt, checkpoint.step, checkpoint.carried) == (10, 100, Carried(wall_s=9.0))
    new = tmp_path / "attempt-11"
    new.mkdir()
    checkpoint.begin(new)
    assert [(new / f"rank{rank}.jsonl").read_text() for rank in RANKS] == ['{"event":"step","step":100}\n'] * 2


def test_an_attempt_keeps_its_last_one_alone(tmp_path: Path) -> None:
    attempt = take(tmp_path, 1, 10).parent
    for rank in RANKS:
        (attempt / f"rank{rank}.jsonl").write_text("")
    take(tmp_path, 1, 20)
    assert [path.name for path in attempt.glob("*check*")] == ["checkpoint-20"]
    assert has_checkpoint(attempt)


def test_one_that_was_not_finished_is_none(tmp_path: Path) -> None:
    attempt = take(tmp_path, 1, 10).parent
    take(tmp_path, 2, 20).rename(unfinished(tmp_path / "attempt-2", 20))
    assert found(tmp_path) == (10, None)
    delete_unfinished(tmp_path)
    assert not list(tmp_path.glob("attempt-2/*check*")) and not list(tmp_path.glob("attempt-2/.*check*"))
    assert has_checkpoint(attempt)


def damage(folder: Path, how: str) -> None:
    if how == "truncated":
        path = folder / "rank1.pt"
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "changed":
        path = folder / "rank0.pt"
        path.write_bytes(path.read_bytes()[::-1])
    elif how == "one rank":
        (folder / "rank1.json").unlink()
    elif how == "no state":
        (folder / "rank1.pt").unlink()
    elif how == "records":
        (folder.parent / "rank0.jsonl").write_text("{}")
    elif how == "torn":
        (folder / "rank0.json").write_text("{")
    elif how == "environment":
        (folder.parent / "environment.json").unlink()
    else:
        content = json.loads((folder / "rank1.json").read_text())
        (folder / "rank1.json").write_text(json.dumps({**content, "step": 999}))


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("truncated", "rank1.pt is not as it was written"),
        ("changed", "rank0.pt is not as it was written"),
        ("one rank", "rank1.json is missing"),
        ("no state", "rank1.pt"),
        ("records", "rank0.jsonl is not as it was written"),
        ("torn", "rank0.json is missing or not whole"),
        ("environment", "environment.json is missing"),
        ("ranks differ", "its ranks differ in step: 20, 999"),
    ],
)
def test_a_damaged_one_is_refused_and_an_older_one_serves(tmp_path: Path, how: str, said: str) -> None:
    take(tmp_path, 1, 10)
    damage(take(tmp_path, 2, 20), how)
    step, refused = found(tmp_path)
    assert step == 10
    assert refused is not None and "checkpoint-20 of attempt-2" in refused and said in refused
    shutil.rmtree(tmp_path / "attempt-1")
    assert found(tmp_path) == (None, refused)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"packages": {"torch": "2.8"}}, "its packages is torch 2.9, and now it is torch 2.8"),
        ({"git": {"commit": "b" * 40}}, "its git commit is aaaaaaaaaaaa, and now it is bbbbbbbbbbbb"),
        ({"git": None}, "and now it is None"),
        ({"source_sha256": "1" * 64}, "its source sha256 is 000000000000, and now it is 111111111111"),
        ({"plugins_sha256": {"/a.py": "1" * 64}}, "its plugins sha256 is None, and now it is /a.py 1111"),
        ({"host": "there"}, "its host is here, and now it is there"),
        ({"bwbench": "9"}, "its bwbench is None, and now it is 9"),
    ],
)
def test_another_program_or_machine_begins_anew(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    take(tmp_path, 1, 10)
    step, refused = found(tmp_path, {**NOW, **change})
    assert step is None and refused is not None and said in refused


def test_another_number_of_nodes_or_format_begins_anew(tmp_path: Path) -> None:
    take(tmp_path, 1, 10, world_size=3)
    assert "it is of 3 nodes, and the cell has 2" in str(found(tmp_path)[1])
    shutil.rmtree(tmp_path / "attempt-1")
    folder = take(tmp_path, 1, 10)
    for path in folder.glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "schema": 99}))
    assert "schema 99 is newer" in str(found(tmp_path)[1])


def test_all_of_a_cell_go_when_it_is_done(tmp_path: Path) -> None:
    for attempt in (1, 2):
        take(tmp_path, attempt, 10 * attempt)
    delete_checkpoints(tmp_path)
    assert not list(tmp_path.glob("*/*check*"))
    assert len(list(tmp_path.glob("*/rank*.jsonl"))) == 4
