"""What a worker is given: the planned cell, with the plan's plugins, whatever lies in cell.json."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.config import load_experiment
from bwbench.experiment.plan import Cell, PlannedCell, assess, build_plan
from bwbench.experiment.plan.assess import UNREADABLE
from bwbench.experiment.plan.given_cell import CELL_ID, PLUGINS, TORCH_LOG_LEVEL, given_cell, planned_environment
from bwbench.running.run_cell import keep_planned

YAML = "name: mine\nnodes: 2\nlink: {bandwidth: 10 Mbit/s}\nmodel: logistic\nalgorithm: ring\n"


def planned(folder: Path, plugins: Sequence[str] = ()) -> Cell:
    (folder / "mine.yaml").write_text(YAML + "".join(f"plugins: [{path}]\n" for path in plugins))
    return build_plan(load_experiment(folder / "mine.yaml")).cells[0]


def plugin(folder: Path, name: str) -> tuple[Path, Path]:
    """A plugin, and the file that it makes when it is imported."""
    marker = folder / f"{name}-was-imported"
    file = folder / f"{name}.py"
    file.write_text(f"import pathlib\npathlib.Path({str(marker)!r}).touch()\n")
    return file, marker


def file_of(folder: Path, cell: Cell, **config: object) -> Path:
    content = cell.to_json()
    content["config"] = {**content["config"], **config}
    (folder / "cell.json").write_text(json.dumps(content))
    return folder / "cell.json"


def test_the_planned_cell_comes_back_with_its_plugins(tmp_path: Path) -> None:
    file, marker = plugin(tmp_path, "mine")
    cell = planned(tmp_path, ["mine.py"])
    assert marker.exists() and cell.config.plugins == (str(file),)
    assert given_cell(file_of(tmp_path, cell), planned_environment(cell)) == cell


def test_plugins_that_the_file_names_and_the_plan_does_not_are_refused(tmp_path: Path) -> None:
    cell = planned(tmp_path)
    evil, marker = plugin(tmp_path, "evil")
    file = file_of(tmp_path, cell, plugins=[str(evil)])
    for environment in (planned_environment(cell), {}):
        with pytest.raises(ConfigError, match=f"names plugins.*{PLUGINS}={evil}"):
            given_cell(file, environment)
    assert not marker.exists()
    with pytest.raises(ConfigError, match="names plugins that are not those"):
        Cell.from_json(json.loads(file.read_text()), plugins=[])
    assert not marker.exists()


def test_another_cell_and_another_configuration_are_refused(tmp_path: Path) -> None:
    cell = planned(tmp_path)
    with pytest.raises(ConfigError, match="where 0123456789 was planned"):
        given_cell(file_of(tmp_path, cell), {**planned_environment(cell), CELL_ID: "0123456789"})
    for environment in (planned_environment(cell), {}):
        with pytest.raises(ConfigError, match=f"has the id {cell.id}, and its configuration that of"):
            given_cell(file_of(tmp_path, cell, batch_size=64), environment)
    assert given_cell(file_of(tmp_path, cell), {}) == cell  # by hand


def lying(tmp_path: Path, cell: Cell, **config: object) -> Path:
    folder = tmp_path / "results" / "mine" / cell.folder_name
    (folder / "attempt-1").mkdir(parents=True)
    file_of(folder, cell, **config)
    about = {"schema": 1, "id": cell.id, "slug": cell.slug, "status": "failed", "attempt": 1}
    (folder / "status.json").write_text(json.dumps(about))
    return folder


@pytest.mark.parametrize(
    "config", [{"batch_size": 64}, {"plugins": ["/tmp/evil.py"]}, {"nodes": 3, "of_a_later_version": 1}]
)
def test_another_configuration_under_the_id_of_a_planned_cell_does_not_run(
    tmp_path: Path, config: dict[str, object]
) -> None:
    cell = planned(tmp_path)
    folder = lying(tmp_path, cell, **config)
    (item,) = assess([cell], tmp_path / "results", retry=["failed"])
    assert item.status == UNREADABLE and not item.runs
    assert str(folder / "cell.json") in item.why and "delete the folder" in item.why


def test_what_lies_there_gives_way_to_the_plan(tmp_path: Path) -> None:
    cell = planned(tmp_path)
    folder = lying(tmp_path, cell, of_a_later_version=True)
    (item,) = assess([cell], tmp_path / "results", retry=["failed"])
    assert item.runs
    keep_planned(item)
    assert json.loads((folder / "cell.json").read_text()) == cell.to_json()


@pytest.mark.parametrize("torn", ["", "{", "[]"])
def test_a_torn_file_is_written_anew(tmp_path: Path, torn: str) -> None:
    cell = planned(tmp_path)
    folder = lying(tmp_path, cell)
    (folder / "cell.json").write_text(torn)
    (item,) = assess([cell], tmp_path / "results", retry=["failed"])
    assert item.runs
    before = (folder / "cell.json").stat().st_ino
    keep_planned(item)
    mended = (folder / "cell.json").stat().st_ino
    keep_planned(PlannedCell(cell, folder, "failed", runs=True, why=""))
    assert before != mended == (folder / "cell.json").stat().st_ino  # written once


CONNECT = """
import datetime
from torch.distributed import TCPStore
try:
    TCPStore("a" * 80, 29999, 2, False, timeout=datetime.timedelta(seconds=1))
except Exception as error:
    print(type(error).__name__)
"""


def test_torchs_warnings_about_addresses_stay_out_of_logs_and_a_level_of_the_users_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = planned(tmp_path)
    monkeypatch.delenv(TORCH_LOG_LEVEL, raising=False)
    command = [sys.executable, "-c", CONNECT]
    environment = {**os.environ, **planned_environment(cell)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "Error" in done.stdout and "[W" not in done.stderr, done.stderr
    monkeypatch.setenv(TORCH_LOG_LEVEL, "INFO")
    assert planned_environment(cell)[TORCH_LOG_LEVEL] == "INFO"
