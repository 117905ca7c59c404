"""The shell files for torchrun and Slurm: what they carry is data, whatever it is called."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bwbench.base.errors import ConfigError
from bwbench.experiment.plan.cell import Cell
from bwbench.running.cluster.job_scripts import ScriptSetting, slurm_script, torchrun_script
from tests.unit.running.cells import planned_cells

NASTY = "it's $(touch stolen) `touch stolen` \"; touch stolen #"


def external(folder: Path, **changes: object) -> Cell:
    cell = planned_cells(folder / "results", 1)[0].cell
    return replace(cell, config=cell.config.model_copy(update={"launcher": "external"}), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("script", [torchrun_script, slurm_script])
def test_every_name_is_quoted_and_the_cell_arrives_as_it_was(tmp_path: Path, script: object) -> None:
    cell = external(tmp_path / "planned", arm=NASTY)
    text = script([cell], ScriptSetting(f"/nowhere/{NASTY}", str(tmp_path), NASTY, {"BWBENCH_DATA": NASTY}))  # type: ignore[operator]
    for name in ("scontrol", "srun", "python3"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "job.sh").write_text(text)
    environment = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "HEAD": "127.0.0.1",
        "NODE": "0",
        "SLURM_JOB_NODELIST": "a",
        "SLURM_JOB_ID": "7",
    }
    done = subprocess.run(
        ["bash", "job.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode in (0, 1)) and not list(tmp_path.rglob("stolen")), done.stderr
    (found,) = tmp_path.rglob("cell.json")
    assert found.parent == tmp_path / NASTY / cell.experiment / cell.folder_name
    assert json.loads(found.read_text()) == cell.to_json()


def test_a_job_asks_for_as_many_nodes_as_the_largest_cell_needs(tmp_path: Path) -> None:
    small = external(tmp_path)
    large = replace(small, config=small.config.model_copy(update={"nodes": small.config.nodes + 3}))
    text = slurm_script([small, large], ScriptSetting("python", "/", "results", {}))
    assert f"#SBATCH --nodes={large.config.nodes}\n" in text
    assert f"\nrun {small.config.nodes} " in text and f"\nrun {large.config.nodes} " in text


@pytest.mark.parametrize("script", [torchrun_script, slurm_script])
def test_workers_are_told_which_cell_and_which_plugins_were_planned(tmp_path: Path, script: object) -> None:
    plain = external(tmp_path)
    plugged = replace(plain, config=plain.config.model_copy(update={"plugins": (f"/nowhere/{NASTY}.py",)}))
    for name in ("python", "srun", "scontrol"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$BWBENCH_CELL_ID $BWBENCH_PLUGINS" >> told\n')
        (tmp_path / name).chmod(0o755)
    text = script([plugged, plain], ScriptSetting("python", str(tmp_path), "results", {}))  # type: ignore[operator]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "a", "SLURM_JOB_ID": "7"}
    environment |= {"HEAD": "127.0.0.1", "NODE": "0"}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True, timeout=120)
    told = [line for line in (tmp_path / "told").read_text().splitlines() if line.strip()]
    assert told == [f"{plain.id} /nowhere/{NASTY}.py", f"{plain.id} "] and not list(tmp_path.rglob("stolen"))


@pytest.mark.parametrize(
    ("nodes", "workers", "node", "started"),
    [
        (4, "1", 3, "--nnodes=4 --nproc-per-node=1 --node-rank=3"),
        (4, "2", 1, "--nnodes=2 --nproc-per-node=2 --node-rank=1"),
        (4, "2", 2, None),  # two hosts have them all
        (1, "2", 0, "--nnodes=1 --nproc-per-node=1 --node-rank=0"),  # one node alone, beside cells of several
        (1, "2", 1, None),
    ],
)
def test_a_host_may_have_several_workers(
    tmp_path: Path, nodes: int, workers: str, node: int, started: str | None
) -> None:
    cell = external(tmp_path)
    cell = replace(cell, config=cell.config.model_copy(update={"nodes": nodes}))
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@" >> told\n')
    (tmp_path / "python").chmod(0o755)
    text = torchrun_script([cell], ScriptSetting("python", str(tmp_path), "results", {}))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HEAD": "10.0.0.1", "NODE": str(node), "WORKERS": workers}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True, timeout=120)
    told = (tmp_path / "told").read_text() if (tmp_path / "told").exists() else ""
    assert (started in told) if started else not told


@pytest.mark.parametrize(
    ("variables", "started"),
    [
        ({"HEAD": "10.0.0.1", "NODE": "1"}, "--nnodes=2 --nproc-per-node=4 --node-rank=1"),
        ({"HEAD": "10.0.0.1", "NODE": "5", "WORKERS": "1"}, "--nnodes=8 --nproc-per-node=1 --node-rank=5"),
        ({"WORKERS": "8"}, "--nnodes=1 --nproc-per-node=8 --node-rank=0"),  # one host needs no address
    ],
)
def test_ranks_a_host_that_were_asked_for(tmp_path: Path, variables: dict[str, str], started: str) -> None:
    cell = external(tmp_path)
    cell = replace(cell, config=cell.config.model_copy(update={"nodes": 8}))
    (tmp_path / "python").write_text('#!/bin/sh\necho "$@" >> told\n')
    (tmp_path / "python").chmod(0o755)
    text = torchrun_script([cell], ScriptSetting("python", str(tmp_path), "results", {}), per_host=4)
    assert "on 2 host(s)" in text and "A host starts 4 ranks" in text
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", **variables}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert started in (tmp_path / "told").read_text()


def test_ranks_a_node_of_a_cluster(tmp_path: Path) -> None:
    one = external(tmp_path)
    cells = [replace(one, config=one.config.model_copy(update={"nodes": nodes})) for nodes in (8, 1)]
    for name in ("srun", "scontrol"):
        (tmp_path / name).write_text('#!/bin/sh\necho "$OMP_NUM_THREADS $@" >> told\n')
        (tmp_path / name).chmod(0o755)
    text = slurm_script(cells, ScriptSetting("python", str(tmp_path), "results", {}), per_host=4)
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=4\n" in text
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "a", "SLURM_JOB_ID": "7"}
    subprocess.run(["bash", "-c", text], cwd=tmp_path, env=environment, check=True, timeout=120)
    told = [line for line in (tmp_path / "told").read_text().splitlines() if "--ntasks" in line]
    assert ["1 --nodes=2 --ntasks=8 --ntasks-per-node=4 --distribution=block" in line for line in told] == [True, False]
    assert "1 --nodes=1 --ntasks=1 --ntasks-per-node=1 " in told[1]


@pytest.mark.parametrize("script", [torchrun_script, slurm_script])
def test_ranks_a_host_that_do_not_divide_a_cell_are_refused(tmp_path: Path, script: object) -> None:
    cell = external(tmp_path)
    cell = replace(cell, config=cell.config.model_copy(update={"nodes": 6}))
    with pytest.raises(ConfigError, match="--per-host 4: cell .* has 6 nodes, which cannot be 4 a host"):
        script([cell], ScriptSetting("python", "/", "results", {}), per_host=4)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("workers", "said"), [("3", "nodes cannot be 3 a host"), ("two", "write a number"), ("0", "write")]
)
def test_workers_that_do_not_divide_the_nodes_are_refused(tmp_path: Path, workers: str, said: str) -> None:
    cell = external(tmp_path)
    cell = replace(cell, config=cell.config.model_copy(update={"nodes": 4}))
    text = torchrun_script([cell], ScriptSetting("/bin/true", str(tmp_path), "results", {}))
    environment = {"PATH": "/usr/bin:/bin", "HEAD": "10.0.0.1", "NODE": "0", "WORKERS": workers}
    done = subprocess.run(
        ["bash", "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (1, 2) and said in done.stderr
    assert not list(tmp_path.glob("results/*/*/cell.json"))
