"""What a machine says of itself, what it brings back, and which address Ray gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bwbench.base.errors import CellTakenError, ConfigError, UnfitMachineError
from bwbench.base.model_shapes import Layer, ModelShapes, to_json
from bwbench.experiment.plan.assess import PlannedCell
from bwbench.records.cell_identity import recorded_identity
from bwbench.records.schema import Status
from bwbench.running.cluster import ray_executor
from bwbench.running.cluster import remote_machine as module
from bwbench.running.cluster.ray_executor import RayExecutor, check_answers, ray_address
from bwbench.running.cluster.remote_machine import Work, carry_out, describe_here, representatives
from bwbench.running.executor import Finished, Machine, TakenElsewhere, Unfit
from bwbench.running.launch.ssh.host_facts import host_facts
from bwbench.running.launch.ssh.preflight import representatives as on_hosts
from bwbench.running.sweep import plan_sweep
from bwbench.running.sweep.scheduler import pack, unpack
from tests.unit.running.cells import STUDY, planned_cells


def work_for(item: PlannedCell, *, shared: bool, number: int = 1) -> Work:
    machine = Machine("a", "a", "a", 2.0, shared=shared)
    return replace(Work.of(item, machine, 60.0, alone=True), number=number)


def fake_run(item: PlannedCell, wall_limit_s: float, observer: Any) -> Status:
    """An attempt as the runner numbers it."""
    number = len(list(item.folder.glob("attempt-*"))) + 1 if item.folder.is_dir() else 1
    attempt = item.folder / f"attempt-{number}"
    attempt.mkdir(parents=True)
    (attempt / "rank0.jsonl").write_text("{}\n")
    observer.cell_phase(item.cell, "training")
    observer.cell_event(item.cell, 1, {"event": "eval"})
    return Status(id=item.cell.id, slug=item.cell.slug, status="done", attempt=number)


def test_an_attempt_comes_back_with_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = planned_cells(tmp_path / "results", 1)
    monkeypatch.setattr(module, "run_item", fake_run)
    told: list[tuple[Any, ...]] = []
    outcome = carry_out(work_for(item, shared=False, number=2), lambda *letter: told.append(letter))
    assert told == [("phase", "training", None), ("event", 1, {"event": "eval"})]
    assert isinstance(outcome, Finished) and outcome.bundle is not None and not item.folder.exists()
    unpack(outcome.bundle, item.folder)
    assert [path.name for path in item.folder.iterdir()] == ["attempt-2"]
    assert (item.folder / "attempt-2" / "rank0.jsonl").read_text() == "{}\n"


def test_what_a_killed_process_has_left_is_removed_and_what_another_holds_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (item,) = planned_cells(tmp_path / "results", 1)
    monkeypatch.setattr(module, "run_item", fake_run)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    folders = {name: tmp_path / f"{module.TEMPORARY}{name}" for name in ("old", "held", "new")}
    for name, folder in folders.items():
        (folder / "cell").mkdir(parents=True)
        if name != "new":
            os.utime(folder, (0, 0))
    with module._held(folders["held"]):
        carry_out(work_for(item, shared=False), lambda *letter: None)
    assert {path.name for path in tmp_path.glob(f"{module.TEMPORARY}*")} == {folders["held"].name, folders["new"].name}


def test_a_shared_folder_is_written_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (item,) = planned_cells(tmp_path / "results", 1)
    monkeypatch.setattr(module, "run_item", fake_run)
    outcome = carry_out(work_for(item, shared=True), lambda *letter: None)
    assert isinstance(outcome, Finished) and outcome.bundle is None
    assert (item.folder / "attempt-1" / "rank0.jsonl").is_file()


@pytest.mark.parametrize("virtual", [False, True])
def test_nodes_are_virtual_there_where_they_were_planned_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, virtual: bool
) -> None:
    (item,) = planned_cells(tmp_path / "results", 1)
    compute = item.cell.config.compute.model_copy(update={"virtual": virtual})
    cell = replace(item.cell, config=item.cell.config.model_copy(update={"compute": compute}))
    ran: list[PlannedCell] = []

    def keep(item: PlannedCell, wall_limit_s: float, observer: Any) -> Status:
        ran.append(item)
        return fake_run(item, wall_limit_s, observer)

    monkeypatch.setattr(module, "run_item", keep)
    carry_out(work_for(replace(item, cell=cell), shared=True), lambda *letter: None)
    assert [one.cell for one in ran] == [cell]


@pytest.mark.parametrize(
    "error, expected", [(CellTakenError("by another"), TakenElsewhere()), (UnfitMachineError("no"), Unfit("no"))]
)
def test_what_is_no_end_of_a_cell_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, expected: TakenElsewhere | Unfit
) -> None:
    def fail(*_: Any) -> dict[str, Any]:
        raise error

    (item,) = planned_cells(tmp_path / "results", 1)
    monkeypatch.setattr(module, "run_item", fail)
    outcome = carry_out(work_for(item, shared=False), lambda *letter: None)
    assert outcome == expected


def test_a_bundle_cannot_leave_its_folder(tmp_path: Path) -> None:
    attempt = tmp_path / "from" / "attempt-1"
    attempt.mkdir(parents=True)
    (attempt / "out").symlink_to("/etc/passwd")
    with pytest.raises(Exception, match="out"):
        unpack(pack(attempt), tmp_path / "to")


ORPHAN = """
import os, sys, time
from bwbench.running.cluster.remote_machine import _die_with_parent
if os.fork():
    time.sleep(60)
_die_with_parent()
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_process_that_runs_a_cell_does_not_outlive_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{child}").exists() and "Z" not in Path(f"/proc/{child}/stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_machine_says_whether_it_sees_the_results(tmp_path: Path) -> None:
    cells = representatives(item.cell for item in planned_cells(tmp_path / "results", 5))
    assert len(cells) == 1, "repeats need the same files"
    (tmp_path / "marker").write_text("token")
    seen = describe_here(str(tmp_path / "marker"), "token", cells)
    assert seen["shared"] and seen["problem"] is None and seen["host"]
    assert not describe_here(str(tmp_path / "marker"), "another", cells)["shared"]
    assert not describe_here(str(tmp_path / "nowhere"), "token", cells)["shared"]


def test_a_machine_says_which_shapes_it_lacks(tmp_path: Path) -> None:
    study = STUDY.replace("model: logistic\ndataset: digits", "model: {shapes: mine.json}\ncompute: {step_time: 9 ms}")
    study = study.replace("optimizer: {sgd: {lr: 0.05}}", "matrix: {model.of: [mine.json, other.json, vgg16]}")
    for name in ("mine", "other"):
        model = ModelShapes(name, (Layer("fc", ((8, 8),), 1.0),))
        (tmp_path / f"{name}.json").write_text(json.dumps(to_json(model)))
    (tmp_path / "study.yaml").write_text(study)
    planned = [item.cell for item in plan_sweep([tmp_path / "study.yaml"], tmp_path / "results").selected]
    cells = representatives(planned)
    assert len(cells) == len(on_hosts(planned)) == 3
    assert describe_here("", "", cells)["problem"] is None and host_facts(on_hosts(planned)).missing_data == ()
    (tmp_path / "other.json").unlink()
    (lacking,) = host_facts(on_hosts(planned)).missing_data
    assert "there are no shapes of" in lacking and "other.json" in lacking
    assert describe_here("", "", cells)["problem"] == lacking


def test_a_machine_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BWBENCH_DATA", str(tmp_path / "nowhere"))
    (item,) = planned_cells(tmp_path / "results", 1)
    content = item.cell.to_json()
    content["config"]["dataset"]["name"] = "fashion-mnist"
    content["id"] = recorded_identity(content["config"])
    assert "bwbench data fetch fashion-mnist" in str(describe_here("", "", [content])["problem"])
    content = item.cell.to_json()
    content["config"]["plugins"] = [str(tmp_path / "my_codec.py")]
    assert "my_codec.py" in str(describe_here("", "", [content])["problem"])


@pytest.mark.parametrize(
    "text", ["Ray", "ray://", "ray://host", "ray://:1", "ray://a b:1", "ray://h:99999", "slurm", ""]
)
def test_other_places_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="ray://HOST:PORT"):
        ray_address(text)


def test_what_ray_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_executor.importlib.util, "find_spec", lambda name: object())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert ray_address("ray") == "auto"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert ray_address("ray") == "10.0.0.1:6379"
    assert ray_address("ray://desktop.local:10001") == "ray://desktop.local:10001"
    monkeypatch.setattr(ray_executor.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'bwbench\[ray\]'"):
        ray_address("ray")


@pytest.mark.parametrize(
    "module, said",
    [
        ("def init(**_): raise RuntimeError('Version mismatch: Ray 2.1 and 2.2')", "Ray says: RuntimeError: Version"),
        ("def init(**_): raise ConnectionError('no')", "ray start --head"),
        ("import time\ndef init(**_): time.sleep(60)", "has answered within"),
        ("import os\ndef init(**_): os.abort()", "exit status -6"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_said_within_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, said: str
) -> None:
    (tmp_path / "ray.py").write_text(f"{module}\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(UnfitMachineError) as raised:
        check_answers("auto", limit_s=2.0 if "sleep" in module else 100.0)
    assert said in str(raised.value)


def test_a_cluster_whose_head_is_gone_is_said() -> None:
    class Gone:
        def nodes(self) -> None:
            raise RuntimeError("Failed to get all node info\nand more")

    executor = RayExecutor.__new__(RayExecutor)
    executor._ray, executor._looked_s = Gone(), float("-inf")
    with pytest.raises(UnfitMachineError, match="does not answer any more.*Failed to get all node info$"):
        executor.reports(0.0)
