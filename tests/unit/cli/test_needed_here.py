"""Data sets and GPUs that are not here are said before anything starts: ``plan`` notes it, ``run`` ends by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.cli import needed_here
from bwbench.cli.carry_out import check_launcher
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import build_plan
from bwbench.running.cluster.ray_executor import RayCluster
from bwbench.running.sweep import plan_sweep
from tests.unit.cli.test_plan_and_list import BASE, Ended, ended_in_turn
from tests.unit.training.datasets.official_format import write_idx_files

COMMANDS = {
    "plan": ("plan", "study.yaml"),
    "json": ("plan", "study.yaml", "--json"),
    "run": ("run", "study.yaml"),
    "elsewhere": ("plan", "study.yaml", "--set", "launcher=external", "--set", "link=unshaped"),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Ended]:
    """How each command ends where data are missing, and where they are damaged; it leaves nothing behind."""
    found = {}
    for state in ("missing", "damaged"):
        home = tmp_path_factory.mktemp(state)
        folder = home / "here"
        folder.mkdir()
        (folder / "study.yaml").write_text(BASE + "dataset: fashion-mnist\n")
        if state == "damaged":
            write_idx_files(home / "cache" / "bwbench" / "data" / "fashion-mnist")
        all_ended = ended_in_turn(home, [(folder, words) for words in COMMANDS.values()])
        found |= {(state, name): one for name, one in zip(COMMANDS, all_ended, strict=True)}
        assert [path.name for path in folder.iterdir()] == ["study.yaml"]
    return found


SAID = {"missing": ["and 3 more, which are missing"], "damaged": [f"{part}-{kind}" for part, kind in (
    ("train", "images-idx3-ubyte.gz is damaged"), ("train", "labels-idx1-ubyte.gz is damaged"),
    ("t10k", "images-idx3-ubyte.gz is damaged"), ("t10k", "labels-idx1-ubyte.gz is damaged"),
)]}  # fmt: skip


@pytest.mark.parametrize("state", SAID)
def test_plan_notes_what_is_wrong_with_data_once(ended: dict[tuple[str, str], Ended], state: str) -> None:
    table, content = ended[state, "plan"], json.loads(ended[state, "json"].stdout)
    assert table.returncode == 0 and "fashion-mnist" in table.stderr
    for words in SAID[state]:
        assert table.stderr.count(words) == 1, table.stderr
        assert sum(words in text for text in content["data_problems"]) == 1
    assert len(content["data_problems"]) == len(SAID[state])
    assert "bwbench data fetch fashion-mnist" in table.stderr
    assert len(content["cells"]) == 3


@pytest.mark.parametrize("state", SAID)
def test_run_ends_before_anything_starts(ended: dict[tuple[str, str], Ended], state: str) -> None:
    one = ended[state, "run"]
    assert one.returncode == 2 and one.stdout == ""
    assert all(one.stderr.count(words) == 1 for words in SAID[state]), one.stderr
    assert "Traceback" not in one.stderr


def test_hosts_have_data_of_their_own(ended: dict[tuple[str, str], Ended]) -> None:
    one = ended["missing", "elsewhere"]
    assert "fashion-mnist/" not in one.stderr, one.stderr


def test_a_gpu_that_is_not_here_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "study.yaml").write_text(BASE + "compute: {device: cuda}\n")
    cells = build_plan(load_experiment(tmp_path / "study.yaml")).cells
    monkeypatch.setattr(needed_here, "GPU_FILES", (str(tmp_path / "nvidiactl"),))
    (problem,) = needed_here.device_problems(cells)
    assert "needs a GPU" in problem.message and "device: cpu" in problem.message
    with pytest.raises(ConfigError, match="needs a GPU"):
        needed_here.check_needed(cells)
    (tmp_path / "nvidiactl").touch()
    assert needed_here.device_problems(cells) == []


def test_a_cluster_is_not_asked_for_gpus(tmp_path: Path) -> None:
    file, cluster = tmp_path / "study.yaml", RayCluster("10.0.0.1:6379", 1)
    file.write_text(BASE + "compute: {device: cuda}\n")
    on_gpus = plan_sweep([file], tmp_path / "results")
    with pytest.raises(ConfigError, match="does not go with --on.*without --on"):
        check_launcher(on_gpus, cluster)
    check_launcher(on_gpus, None)
    file.write_text(BASE)
    check_launcher(plan_sweep([file], tmp_path / "results"), cluster)
