"""Published records: every command says of them what it says of the folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures_composed import CONVERGENCE_S, TIMING_S, compose
from fixtures_records import Study, write_study

from bwbench.base.errors import EXIT_OK, ConfigError
from bwbench.cli.result_commands import TableFormat, TableRows, compare, export, merge, plot, publish, show, status
from bwbench.experiment.plan.assess import assess, freeze_plan
from bwbench.experiment.plan.cell import Cell
from bwbench.records import iter_cells, read_json, write_json_atomic
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.packed import PACKED, read_packed
from bwbench.records.schema import PlanAbout, PlanOrder
from bwbench.results.analysis.results import load_results

STUDY = Study(
    "wifi", arms=("ddp", "ring", "ring-fp16", "single"), bandwidths_mbps=(5.0, 20.0), repeats=2,
    statuses={("ring", 1): ("failed", "rank 2 was killed by SIGKILL")},
)  # fmt: skip


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A study of which some cells are composed, some both ways, one failed."""
    folders = write_study(tmp_path / "results", STUDY)
    done = [folder for folder in folders if read_json(folder / "status.json")["status"] == "done"]
    for number, folder in enumerate(done):
        if number % 3 and not folder.name.startswith("single"):
            compose(folder, 1 + 0.01 * number, whole=number % 3 == 2)
    return tmp_path / "results"


@pytest.fixture
def published(results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """The same without its folders, in the folder that they had, where earlier versions published."""
    assert publish(results) == EXIT_OK
    kept = tmp_path / "folders"
    results.rename(kept)
    (results / "wifi").mkdir(parents=True)
    shutil.move(kept / "published" / "wifi" / PACKED, results / "wifi")
    capsys.readouterr()
    return results


def both(results: Path, published: Path, look: Callable[[], Any]) -> tuple[Any, Any]:
    """What ``look`` gives of the published cells, and of the folders in their place."""
    of_published = look()
    away = results.with_name("published")
    results.rename(away)
    results.with_name("folders").rename(results)
    return of_published, look()


def printed(capsys: pytest.CaptureFixture[str], command: Callable[[], int]) -> Callable[[], Any]:
    def look() -> Any:
        assert command() == EXIT_OK
        captured = capsys.readouterr()
        return captured.out, captured.err

    return look


@pytest.mark.parametrize("what", [TableRows.cells, TableRows.evaluations])
def test_exports_are_the_same(
    results: Path, published: Path, capsys: pytest.CaptureFixture[str], what: TableRows
) -> None:
    one, other = both(results, published, printed(capsys, lambda: export(results, TableFormat.json, what=what)))
    assert one == other


def test_status_comparison_and_costs_are_the_same(
    results: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def look() -> list[Any]:
        return [
            printed(capsys, command)()
            for command in (
                lambda: status(results, json=True),
                lambda: status(results, json=True, spent=True),
                lambda: compare(results, baseline="ddp", json=True),
            )
        ]

    one, other = both(results, published, look)
    assert one == other


def test_tables_of_figures_are_the_same(results: Path, published: Path) -> None:
    def look() -> list[Any]:
        return [
            table.to_json(orient="records")
            for group in load_results(results)
            for table in (group.cells, group.curves, group.ledger, group.times)
        ]

    one, other = both(results, published, look)
    assert len(one) >= 4
    assert one == other


def test_pictures_are_the_same(results: Path, published: Path, tmp_path: Path) -> None:
    def look() -> dict[str, bytes]:
        out = tmp_path / "figures"
        plot(results, out=out, figure=["bandwidth"])
        found = {path.name: path.read_bytes() for path in out.rglob("*.*")}
        shutil.rmtree(out)
        return found

    one, other = both(results, published, look)
    assert len(one) == 3
    assert one == other


def test_a_failed_cell_is_shown_with_its_log(
    results: Path, published: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = next(cell for cell in iter_cells(results) if cell.status.status == "failed")
    one, other = both(results, published, printed(capsys, lambda: show(failed.cell.id, results, json=True)))
    shown, of_folder = json.loads(one[0]), json.loads(other[0])
    assert "Traceback (most recent call last):" in shown["logs"]["rank2.log"]
    same = ("cell", "status", "attempts", "composed", "ledger", "evaluations", "environment", "logs")
    assert {key: shown[key] for key in same} == {key: of_folder[key] for key in same}


def test_steps_are_not_published_and_that_is_said(published: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="published"):
        export(published, TableFormat.json, what=TableRows.steps)


def test_publishing_again_changes_nothing(results: Path, published: Path) -> None:
    before = (published / "wifi" / PACKED).read_bytes()
    publish(published / "wifi")
    assert (published / "wifi" / PACKED).read_bytes() == before


def test_cells_that_have_a_folder_are_taken_in_and_others_stay(published: Path, tmp_path: Path) -> None:
    packed = read_packed(published / "wifi")
    assert packed is not None
    name = packed.names[0]
    shutil.copytree(tmp_path / "folders" / "wifi" / name, published / "wifi" / name)
    content = read_json(published / "wifi" / name / "status.json")
    write_json_atomic(published / "wifi" / name / "status.json", {**content, "final_metric": 0.123})
    publish(published)
    again = read_packed(published / "wifi")
    assert again is not None
    assert again.names == packed.names and again.runs == packed.runs
    changed = [name for (name, one), (_, other) in zip(packed.cells(), again.cells(), strict=True)
               if one.content != other.content]  # fmt: skip
    assert changed == [name]


def test_what_has_not_ended_is_left_out_and_said(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = next((results / "wifi").glob("single-*"))
    (folder / "status.json").unlink()
    publish(results, to=results.with_name("out"))
    assert f"{folder.name}: unfinished" in capsys.readouterr().err
    assert not any(cell.path.name == folder.name for cell in iter_cells(results.with_name("out")))


@pytest.mark.parametrize("place", ["nowhere", "empty"])
def test_where_there_is_nothing_to_publish_that_is_said(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=place):
        publish(tmp_path / place)


def test_costs_count_shared_runs_once(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(results / "wifi", results / "again")
    status(results, json=True, spent=True)
    content = json.loads(capsys.readouterr().out)
    one, other = content["experiments"]
    num_timing, num_convergence = one["num_runs"]["timing"], one["num_runs"]["convergence"]
    assert one["machine_s_by_kind"]["timing"] == num_timing * TIMING_S > 0
    assert one["machine_s_by_kind"]["convergence"] == num_convergence * CONVERGENCE_S > 0
    assert content["total"]["num_runs"]["convergence"] == num_convergence  # shared by both
    assert content["total"]["num_runs"]["timing"] == 2 * num_timing  # each its own
    assert other["machine_s"] == pytest.approx(one["machine_s"])
    assert one["num_unknown_runs"] == 0
    assert one["composed_error"]["num"] > 0


def planned(cells: list[Cell], results: Path, **settings: Any) -> dict[str, tuple[str, bool]]:
    return {item.cell.id: (item.status, item.runs) for item in assess(cells, results, **settings)}


@pytest.fixture
def as_planned(tmp_path: Path) -> tuple[Path, list[Cell]]:
    """Cells as a plan has them, all but the last of which are published: done but for the first, which failed."""
    from bwbench.experiment.config.load import load_experiment
    from bwbench.experiment.plan.cell import build_plan
    from bwbench.records.packed import write_packed

    file = tmp_path / "many.yaml"
    file.write_text(
        "name: many\nnodes: 2\nlink: {bandwidth: 10 Mbit/s, latency: 1 ms}\nmodel: logistic\ndataset: digits\n"
        "optimizer: {sgd: {lr: 0.05}}\nmatrix:\n  algorithm: [ring, ddp, ring-fp16]\n"
    )
    cells = list(build_plan(load_experiment(file)).cells)
    contents = {
        cell.folder_name: {
            "cell.json": cell.to_json(),
            "status.json": {"id": cell.id, "slug": cell.slug, "status": "done", "attempt": 1},
        }
        for cell in cells[:-1]
    }
    contents[cells[0].folder_name]["status.json"]["status"] = "failed"
    write_packed(tmp_path / "results" / "many", "many", contents, [])
    return tmp_path / "results", cells


def test_published_cells_are_not_run_again(as_planned: tuple[Path, list[Cell]]) -> None:
    results, cells = as_planned
    assert list(planned(cells, results).values()) == [("failed", False), ("done", False), ("missing", True)]
    assert list(planned(cells, results, retry=["failed"]).values())[0] == ("failed", True)


def test_planning_makes_no_folders_for_published_cells(as_planned: tuple[Path, list[Cell]]) -> None:
    results, cells = as_planned
    freeze_plan(assess(cells, results), results / "many", PlanAbout(name="many"), PlanOrder())
    assert [path.name for path in (results / "many").iterdir() if path.is_dir()] == [cells[-1].folder_name]
    assert list(planned(cells, results).values()) == [("failed", False), ("done", False), ("missing", True)]


def test_published_cells_are_merged(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = tmp_path / "into"
    merge([published], into)
    assert (into / "wifi" / PACKED).read_bytes() == (published / "wifi" / PACKED).read_bytes()
    merge([published / "wifi"], into)
    assert (into / "wifi" / PACKED).read_bytes() == (published / "wifi" / PACKED).read_bytes()
    merge([tmp_path / "folders"], into)  # folders hold more, and stand before
    assert not any(cell.is_packed for cell in iter_cells(into))


def test_a_better_result_replaces_a_published_one_which_is_kept(
    as_planned: tuple[Path, list[Cell]], tmp_path: Path
) -> None:
    from bwbench.records.packed import write_packed

    results, cells = as_planned
    name = cells[0].folder_name
    better = {
        "cell.json": cells[0].to_json(),
        "status.json": {"id": cells[0].id, "slug": "x", "status": "done", "attempt": 2},
    }
    write_packed(tmp_path / "other" / "many", "many", {name: better}, [])
    merge([tmp_path / "other"], results)
    assert {cell.status.status for cell in iter_cells(results)} == {"done"}
    aside = read_packed(results / "many" / ".duplicates")
    assert aside is not None and [other.rpartition("~")[0] for other in aside.names] == [name]
    merge([tmp_path / "other"], results)
    assert read_packed(results / "many" / ".duplicates") == aside


def test_says_of_traces_their_names_and_not_where_they_lay(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "results", Study("office", arms=("ddp",), bandwidths_mbps=(5.0,), repeats=1))[0]
    content = read_json(folder / "cell.json")
    up = {"file": "/home/somebody/office.tsv", "sha256": "0" * 64, "mean": 5e6}
    content["config"]["link"]["trace"] = {"up": up, "down": None}
    own = {"id": recorded_identity(content["config"])}
    write_json_atomic(folder / "cell.json", {**content, **own})
    write_json_atomic(folder / "status.json", {**read_json(folder / "status.json"), **own})
    folder.rename(folder.with_name(f"{content['slug']}-{own['id']}"))
    assert publish(tmp_path / "results") == EXIT_OK
    packed = read_packed(tmp_path / "results" / "published" / "office")
    assert packed is not None
    ((_, files),) = packed.cells()
    assert files.content["cell.json"]["config"]["link"]["trace"] == {"up": up | {"file": "office.tsv"}, "down": None}
