"""Result folders of several machines: nothing lost, nothing overwritten, safe to repeat."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import EXIT_CELLS_FAILED, EXIT_OK, ConfigError, RecordError
from bwbench.cli.result_commands import merge
from bwbench.records import iter_cells
from bwbench.records import merge as merging
from bwbench.records.lock import claimed

ARMS = ("ring", "single")


def make(folder: Path, name: str = "study", repeats: int = 2, **settings: object) -> Path:
    write_study(folder, Study(name, arms=ARMS, repeats=repeats, limit_s=1.0, **settings))  # type: ignore[arg-type]
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file() and ".lock" not in p.name
    }


def outcomes(captured: str) -> dict[str, str]:
    return {cell["cell"]: cell["outcome"] for cell in json.loads(captured)["cells"]}


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_two_halves_make_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = make(tmp_path / "whole", repeats=3)
    for half in ("a", "b"):
        shutil.copytree(whole, tmp_path / half)
    for number, cell in enumerate(sorted((whole / "study").iterdir())):
        shutil.rmtree(tmp_path / "ab"[number % 2] / "study" / cell.name)
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "into") == EXIT_OK
    assert contents(tmp_path / "into") == contents(whole)
    before = contents(tmp_path / "into")
    capsys.readouterr()
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "into", json=True) == EXIT_OK
    assert set(outcomes(capsys.readouterr().out).values()) == {"already there"}
    assert contents(tmp_path / "into") == before


def test_one_experiment_goes_below_its_name(tmp_path: Path) -> None:
    source = make(tmp_path / "a")
    merge([source / "study"], tmp_path / "into")
    assert contents(tmp_path / "into") == contents(source)


def test_hidden_cells_that_composed_ones_rest_on_come_along(tmp_path: Path) -> None:
    source = make(tmp_path / "a")
    first = next((source / "study").iterdir())
    shutil.copytree(first, source / "study" / ".timing" / first.name)
    shutil.copytree(first, source / ".convergence" / first.name)
    merge([source], tmp_path / "into")
    assert contents(tmp_path / "into") == contents(source)


COMPOSED = {"convergence": "c", "timing": "x"}


@pytest.mark.parametrize(
    ("mine", "other", "stands"),
    [
        ({"status": "failed"}, {"status": "done"}, "other"),
        ({"status": "done", "composed": COMPOSED}, {"status": "done"}, "other"),
        ({"status": "done"}, {"status": "done", "composed": COMPOSED}, "mine"),
        ({"status": "done"}, {"status": "failed"}, "mine"),
        ({"status": "done", "wall_s": 1.0}, {"status": "done", "wall_s": 2.0}, "mine"),
    ],
)
def test_both_sides_of_a_conflict_are_kept(
    tmp_path: Path, mine: dict[str, object], other: dict[str, object], stands: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    into, source = make(tmp_path / "into"), make(tmp_path / "a")
    name = sorted(path.name for path in (into / "study").iterdir())[0]
    edit(into / "study" / name / "status.json", **mine)
    edit(source / "study" / name / "status.json", **other)
    for folder, changed in ((into, mine), (source, other)):
        if "composed" in changed:
            content = {"schema": 1, "id": name.rpartition("-")[2], **COMPOSED}
            (folder / "study" / name / "composed.json").write_text(json.dumps(content))
    texts = {"mine": (into / "study" / name / "status.json").read_text(),
             "other": (source / "study" / name / "status.json").read_text()}  # fmt: skip
    for _ in range(2):  # and again: nothing changes
        assert merge([source], into) == EXIT_OK
        assert (into / "study" / name / "status.json").read_text() == texts[stands]
        (aside,) = (into / "study" / ".duplicates").iterdir()
        assert (aside / "status.json").read_text() == texts["mine" if stands == "other" else "other"]
        assert len(list(iter_cells(into))) == 4
    assert ".duplicates" in capsys.readouterr().err


@pytest.mark.parametrize("virtual_side", ["into", "a"])
def test_a_cell_that_was_timed_stands_before_one_of_virtual_nodes(
    tmp_path: Path, virtual_side: str, capsys: pytest.CaptureFixture[str]
) -> None:
    into, source = make(tmp_path / "into"), make(tmp_path / "a")
    name = sorted(path.name for path in (into / "study").iterdir())[0]
    (environment,) = (tmp_path / virtual_side / "study" / name).glob("attempt-*/environment.json")
    edit(environment, virtual=True)
    assert merge([source], into) == EXIT_OK
    stands = next(cell for cell in iter_cells(into) if cell.path.name == name)
    assert stands.environment is not None and not stands.environment.virtual
    assert "virtual nodes" in capsys.readouterr().err


def test_the_same_cell_under_another_slug_is_one_cell(tmp_path: Path) -> None:
    into, source = make(tmp_path / "into", repeats=1), make(tmp_path / "a", repeats=1)
    for cell in list((source / "study").iterdir()):
        cell.rename(cell.with_name(f"renamed-{cell.name.rpartition('-')[2]}"))
    before = contents(into)
    merge([source], into)
    assert contents(into) == before


def test_a_cell_that_was_only_planned_gives_way(tmp_path: Path) -> None:
    into, source = make(tmp_path / "into", statuses={("ring", 0): ("missing", "")}), make(tmp_path / "a")
    merge([source], into)
    assert contents(into) == contents(source)


def break_cell(cell: Path) -> None:
    (cell / "cell.json").write_text("{")


def break_status(cell: Path) -> None:
    (cell / "status.json").write_text('{"status": ')


def lose_attempt(cell: Path) -> None:
    shutil.rmtree(cell / "attempt-1")


def lose_status(cell: Path) -> None:
    (cell / "status.json").unlink()


@pytest.mark.parametrize("harm", [break_cell, break_status, lose_attempt, lose_status])
def test_what_is_no_whole_record_is_skipped_and_said(
    tmp_path: Path, harm: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    source = make(tmp_path / "a")
    cell = next((source / "study").glob("ring-*"))
    harm(cell)
    assert merge([source], tmp_path / "into") == EXIT_OK
    assert f"skipped: {source}: {cell.name}: " in capsys.readouterr().err
    assert len(list(iter_cells(tmp_path / "into"))) == 3


def test_one_id_with_two_configurations_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into, source = make(tmp_path / "into"), make(tmp_path / "a")
    cell = next((source / "study").glob("ring-*"))
    edit(cell / "cell.json", config={**json.loads((cell / "cell.json").read_text())["config"], "nodes": 99})
    before = contents(into)
    assert merge([source], into) == EXIT_CELLS_FAILED
    assert "refused" in (said := capsys.readouterr().err) and "config: gives the id" in said
    assert contents(into) == before


def test_a_cell_that_runs_in_the_target_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into, source = make(tmp_path / "into", statuses={("ring", 0): ("unfinished", "")}), make(tmp_path / "a")
    cell = next((into / "study").glob("ring-*-r0-*"))
    with claimed(cell):
        merge([source], into)
    assert "runs in the target" in capsys.readouterr().err
    assert not (cell / "status.json").exists()


def test_cut_off_anywhere_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make(tmp_path / "a")
    into = make(tmp_path / "into", repeats=1, statuses={("ring", 0): ("failed", "x")})
    copied, real = 0, shutil.copy2
    rng = random.Random(0)

    def failing(*arguments: object, **options: object) -> object:
        nonlocal copied
        copied += 1
        if rng.random() < 0.2:
            raise OSError(28, "No space left on device", str(arguments[1]))
        return real(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(merging.shutil, "copy2", failing)
    failures = 0
    for _ in range(100):
        try:
            merge([source], into)
            break
        except RecordError as error:
            failures += 1
            assert "No space left" in str(error) and "run it again" in str(error)
            for cell in iter_cells(into):
                assert cell.status is not None  # whatever is visible is whole
    assert failures > 0
    merged = contents(into)
    assert contents(source).items() <= merged.items()
    assert not any("merging" in name for name in merged)
    assert sum(".duplicates" in name and name.endswith("status.json") for name in merged) == 1


def test_plans_are_joined(tmp_path: Path) -> None:
    into, source = make(tmp_path / "into"), make(tmp_path / "a")
    for folder, ids in ((into, ["1", "2"]), (source, ["2", "3"])):
        cells = [{"id": one, "slug": "x", "folder": f"x-{one}"} for one in ids]
        plan = {"schema": 1, "experiment": {"name": "study"}, "cells": cells}
        (folder / "study" / "plan.json").write_text(json.dumps(plan | {"of_later": 1}))
    merge([source], into)
    assert [cell["id"] for cell in json.loads((into / "study" / "plan.json").read_text())["cells"]] == ["1", "2", "3"]
    assert json.loads((into / "study" / "plan.json").read_text())["of_later"] == 1


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    source = make(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for folders, into, words in (
        ([source], source, "same folder"),
        ([source / "study"], source, "one lies in the other"),
        ([tmp_path / "empty"], tmp_path / "into", "no records"),
        ([tmp_path / "nowhere"], tmp_path / "into", "there is no folder"),
        ([next((source / "study").iterdir())], tmp_path / "into", "single cell"),
        ([source], tmp_path / "file", "is a file; name a folder"),
        ([make(tmp_path / "b")], source / "study", "is a cell or an experiment"),
    ):
        with pytest.raises(ConfigError, match=words):
            merge(folders, into)
    assert not (tmp_path / "into").exists()
