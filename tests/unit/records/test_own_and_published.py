"""What a folder means that holds own runs, published sets, or both."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixtures_records import Study, write_study

from bwbench.base.errors import ConfigError, RecordError
from bwbench.cli.options import find_cell
from bwbench.experiment.config.load import load_experiment
from bwbench.records import cell_at, iter_cells
from bwbench.records.own_and_published import taken
from bwbench.results.publish import publish

ARMS = ("ring", "single")


def study(name: str, *arms: str) -> Study:
    return Study(name, arms=arms or ARMS, repeats=1, limit_s=1.0)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A results folder in which `wifi` and `office` are published, and nothing was run."""
    results = tmp_path / "results"
    for name in ("wifi", "office"):
        write_study(results, study(name))
        list(publish(results / name))
        shutil.rmtree(results / name)
    return results


@pytest.fixture
def both(clone: Path) -> Path:
    """The same with own runs of `wifi`, one of them in the published set as well, and of `mine`."""
    write_study(clone, study("wifi", "ring", "ddp"))
    write_study(clone, study("mine", "ddp"))
    return clone


def names(folder: Path, *, published: bool = False) -> list[str]:
    """Experiment, arm, and a star where the cell is a published one."""
    cells = taken(folder, published=published).cells()
    return [f"{cell.cell.experiment} {cell.cell.arm}{'*' * cell.is_packed}" for cell in cells]


def test_publishing_writes_apart_from_the_runs(clone: Path) -> None:
    assert sorted(path.relative_to(clone).as_posix() for path in clone.rglob("*.gz")) == [
        "published/office/cells.jsonl.gz",
        "published/wifi/cells.jsonl.gz",
    ]


def test_own_runs_are_taken_and_sets_are_named_in_one_line(both: Path) -> None:
    assert names(both) == ["mine ddp", "wifi ddp", "wifi ring"]
    assert taken(both).note == "published sets left out: office, wifi; --published takes them"
    assert names(both / "wifi") == ["wifi ddp", "wifi ring"]
    assert taken(both / "wifi").note == "published sets left out: wifi; --published takes them"
    assert (names(both / "mine"), taken(both / "mine").note) == (["mine ddp"], "")


def test_sets_are_taken_where_they_are_asked_for_and_own_runs_stand_before_them(both: Path) -> None:
    everything = ["mine ddp", "office ring*", "office single*", "wifi ddp", "wifi ring", "wifi single*"]
    assert names(both, published=True) == everything
    assert names(both / "wifi", published=True) == everything[-3:]
    assert taken(both, published=True).note == ""
    assert taken(both / "mine", published=True).note == f"--published: no published sets lie beside {both / 'mine'}"


def test_where_there_is_nothing_else_sets_are_taken_and_that_is_said(clone: Path) -> None:
    assert names(clone) == ["office ring*", "office single*", "wifi ring*", "wifi single*"]
    assert taken(clone).note == f"{clone}: no runs of your own, so the published sets are taken: office, wifi"
    (clone / "wifi").mkdir()  # as a plan leaves it of which everything is published
    (clone / "wifi" / "plan.json").write_text("{}")
    for experiment in (clone / "wifi", clone / "office"):
        assert names(experiment) == [f"{experiment.name} ring*", f"{experiment.name} single*"]
        assert str(clone / "published" / experiment.name) in taken(experiment).note


def test_a_path_straight_at_sets_means_these(both: Path) -> None:
    sets = both / "published"
    assert names(sets) == ["office ring*", "office single*", "wifi ring*", "wifi single*"]
    assert names(sets / "wifi") == ["wifi ring*", "wifi single*"]
    assert (taken(sets).note, taken(sets / "wifi").note) == ("", "")


def test_the_folder_may_be_the_one_that_one_is_in(both: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(both / "wifi")
    assert names(Path("."), published=True) == ["wifi ddp", "wifi ring", "wifi single*"]


def test_nothing_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="there is no folder"):
        names(tmp_path / "nowhere")


def test_a_cell_of_ones_own_is_found_before_a_published_one(both: Path) -> None:
    slug = next((both / "wifi").glob("ring-*")).name.rpartition("-")[0]
    assert find_cell(slug, both).parent == both / "wifi"  # although `office` has that slug, too
    single = next(cell.path for cell in iter_cells(both / "published" / "office") if cell.cell.arm == "single")
    assert find_cell(str(both / "office" / single.name), both) == single
    with pytest.raises(ConfigError, match="means 2 published cells"):
        find_cell("single", both)


def test_of_many_cells_of_a_name_a_line_an_experiment_is_said(clone: Path) -> None:
    write_study(clone, Study("large", arms=ARMS, repeats=6, limit_s=1.0))
    with pytest.raises(ConfigError) as caught:
        find_cell("", clone)
    first, only = str(caught.value).splitlines()
    assert first.startswith("'' means 12 cells") and only.strip().startswith(f"{clone / 'large'}: 12, ring-")


def test_a_published_cell_is_found_where_its_folder_would_be(clone: Path) -> None:
    published = next(iter_cells(clone / "published" / "wifi"))
    found = cell_at(clone / "wifi" / published.path.name)
    assert found.is_packed and found.path == published.path


def test_publishing_again_takes_in_what_was_run_since_and_keeps_the_rest(both: Path) -> None:
    (planned,) = write_study(both, Study("wifi", arms=("single",), repeats=1, limit_s=1.0))
    (planned / "status.json").unlink()
    shutil.rmtree(planned / "attempt-1")
    (one,) = publish(both / "wifi")
    assert one.path == both / "published" / "wifi" / "cells.jsonl.gz" and one.num_cells == 3
    assert names(both / "published" / "wifi") == ["wifi ddp*", "wifi ring*", "wifi single*"]


def test_an_experiment_is_not_called_as_the_folder_of_sets(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("name: published\nnodes: 2\nlink: {bandwidth: 10 Mbit/s}\nmodel: logistic\ndataset: digits\n")
    with pytest.raises(ConfigError, match="name: 'published' is the folder of published sets"):
        load_experiment(file)
