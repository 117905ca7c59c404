"""What a sweep will do: files, order, selection, shards; frozen before the first cell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.running.sweep import Selection, SweepPlan, freeze_sweep, plan_sweep
from tests.unit.running.sweep.studies import write_study


def names(sweep: SweepPlan) -> list[str]:
    return [f"{item.cell.experiment}/{item.folder.name}" for item in sweep.selected]


def select(folder: Path, *only: str, shard: str | None = None) -> list[str]:
    return names(plan_sweep([folder], folder / "results", selection=Selection.parse(only, shard)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_study(tmp_path, "one")
    write_study(tmp_path, "two", repeats=1)
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "table.yaml").write_text("not: an experiment")
    return tmp_path


def test_repeats_are_blocks_over_all_files_and_shuffled_inside(folder: Path) -> None:
    cells = [item.cell for item in plan_sweep([folder], folder / "results").selected]
    assert [cell.repeat for cell in cells] == [0] * 12 + [1] * 6
    first = [(cell.experiment, cell.arm) for cell in cells[:12]]
    assert first != sorted(first) and {name for name, _ in first[:8]} == {"one", "two"}


def test_the_order_follows_from_its_seed_and_not_from_what_is_left_out(folder: Path) -> None:
    everything = names(plan_sweep([folder], folder / "results"))
    assert everything == names(plan_sweep([folder], folder / "elsewhere"))
    assert everything != names(plan_sweep([folder], folder / "results", order_seed=1))
    rings = select(folder, "arm=ring")
    assert rings == [name for name in everything if "/ring-" in name] and len(rings) == 6


def test_shards_are_disjoint_and_together_everything(folder: Path) -> None:
    parts = [select(folder, shard=f"{number}/5") for number in range(1, 6)]
    assert sorted(sum(parts, [])) == sorted(select(folder))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert select(folder, "arm=ddp", "experiment=two", shard="3/3") == []


@pytest.mark.parametrize(
    ("only", "count"),
    [
        (["arm=ring|ddp"], 12),
        (["arm=ring", "arm=ddp"], 12),
        (["arm=ring", "link.bandwidth=0.01 Gbit/s"], 3),
        (["link.latency=2500 us"], 18),
        (["repeat=1"], 6),
        (["seed=1"], 6),
        (["optimizer.lr=0.05"], 18),
        (["optimizer=sgd"], 18),
        (["compression=threshold"], 6),
        (["dataset.partition=iid-reshuffled"], 18),
        (["nodes=2", "experiment=two"], 6),
    ],
)
def test_only(folder: Path, only: list[str], count: int) -> None:
    assert len(select(folder, *only)) == count


@pytest.mark.parametrize(
    ("only", "words"),
    [
        ("arn=ring", ["arn", "Did you mean 'arm'", "link"]),
        ("link.bandwith=1", ["link.bandwidth"]),
        ("seed.x=1", ["seed.x", "no keys inside"]),
        ("arm.x=1", ["no keys inside"]),
        ("arm", ["KEY=VALUE"]),
        ("=ring", ["KEY=VALUE"]),
        ("arm=rin", ["leaves no cell", "arm takes", "threshold"]),
        ("link.bandwidth=5 Mbit/s", ["leaves no cell", "1 Mbit/s"]),
        ("optimizer.nothing=5", ["no cell has optimizer.nothing"]),
        ("arm=[", ["leaves no cell"]),
    ],
)
def test_only_that_fits_nothing_says_what_there_is(folder: Path, only: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        select(folder, only)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_keys_of_the_link_keep_what_has_none_where_others_of_its_experiment_fit(tmp_path: Path) -> None:
    write_study(tmp_path, "one", repeats=1, arms="ring, ddp, single, no-communication")
    other = write_study(tmp_path, "two", repeats=1, arms="ring, single")
    other.write_text(other.read_text().replace("[1 Mbit/s, 10 Mbit/s]", "[1 Mbit/s]"))

    def arms(*only: str) -> list[tuple[str, str]]:
        sweep = plan_sweep([tmp_path], tmp_path / "results", selection=Selection.parse(only))
        return sorted((item.cell.experiment, item.cell.arm) for item in sweep.selected)

    at_ten = [("one", arm) for arm in ("ddp", "no-communication", "ring", "single")]
    assert arms("link.bandwidth=10 Mbit/s") == at_ten
    assert arms("link.bandwidth=10 Mbit/s", "link.latency=2.5 ms") == at_ten
    assert arms("arm=ring|single", "link.bandwidth=10 Mbit/s") == [("one", "ring"), ("one", "single")]
    assert arms("link.bandwidth=10 Mbit/s", "arm=ring") == [("one", "ring")]
    with pytest.raises(ConfigError, match="link.bandwidth takes 1?[01] Mbit/s, 10? Mbit/s"):
        arms("link.bandwidth=5 Mbit/s")


@pytest.mark.parametrize("shard", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4", "1/4/2", ""])
def test_a_shard_that_is_none(folder: Path, shard: str) -> None:
    with pytest.raises(ConfigError, match="I/N"):
        select(folder, shard=shard)


def test_problems_of_all_files_at_once(folder: Path) -> None:
    for name in ("one", "two"):
        path = folder / f"{name}.yaml"
        path.write_text(path.read_text().replace("nodes: 2", "nods: 2"))
    with pytest.raises(ConfigError) as error:
        plan_sweep([folder], folder / "results")
    assert "one.yaml:2" in str(error.value) and "two.yaml:2" in str(error.value)


def test_two_files_of_one_name_and_a_folder_without_any(folder: Path) -> None:
    (folder / "other.yaml").write_text((folder / "one.yaml").read_text())
    with pytest.raises(ConfigError, match="also the name of"):
        plan_sweep([folder], folder / "results")
    assert len(plan_sweep([folder / "one.yaml", folder / "one.yaml"], folder / "results").plans) == 1
    (folder / "empty").mkdir()
    with pytest.raises(ConfigError, match="no experiment files"):
        plan_sweep([folder / "empty"], folder / "results")


def test_a_frozen_plan_has_every_cell_in_running_order_and_the_seed(folder: Path) -> None:
    sweep = plan_sweep([folder], folder / "results", selection=Selection.parse(["arm=ring"]), order_seed=3)
    freeze_sweep(sweep)
    for name, count in (("one", 12), ("two", 6)):
        plan = json.loads((folder / "results" / name / "plan.json").read_text())
        assert plan["order"]["seed"] == 3 and plan["order"]["experiments"] == ["one", "two"]
        listed = [cell["folder"] for cell in plan["cells"]]
        assert listed == [item.folder.name for item in sweep.planned if item.cell.experiment == name]
        assert len(listed) == count
        assert all((folder / "results" / name / cell / "cell.json").is_file() for cell in listed)
    hidden = {path.name for path in (folder / "results").rglob(".*")}
    assert hidden == {".lock"}
