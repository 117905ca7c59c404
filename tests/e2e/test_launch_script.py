"""The batch file for Slurm does its work where bash runs it, one task after another."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.e2e.program import TINY, run, status_of


def test_two_tasks_run_all_cells_between_them(tmp_path: Path) -> None:
    folder = tmp_path / "it's a $(folder)"
    folder.mkdir()
    (folder / "two words.yaml").write_text(TINY + "algorithm: single\nrepeats: 2\n")
    made = run("launch-script", "--slurm", "--array", "2", "--results", "my results", "two words.yaml", cwd=folder)
    assert made.returncode == 0, made.stderr
    (tmp_path / "job.sh").write_text(made.stdout)
    assert subprocess.run(["bash", "-n", tmp_path / "job.sh"], capture_output=True).stderr == b""
    for task, done in ((1, 1), (2, 2)):
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(task)}
        result = subprocess.run(
            ["bash", tmp_path / "job.sh"], env=environment, cwd="/", capture_output=True, text=True, timeout=100
        )
        assert result.returncode == 0, result.stderr
        statuses = list((folder / "my results").glob("*/*/status.json"))
        assert len(statuses) == done
    assert status_of(folder / "my results")["single"]["status"] == "done"


def test_other_values_and_fewer_cells(tmp_path: Path) -> None:
    external = TINY.replace("{bandwidth: 100 Mbit/s, latency: 1 ms}", "unshaped") + "launcher: external\n"
    (tmp_path / "far.yaml").write_text(external + "matrix: {algorithm: [single, ddp, ring]}\n")
    options = ("--set", "nodes=3", "--only", "arm=ddp|single")
    made = run("launch-script", "far.yaml", *options, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    started = [line.split()[1:3] for line in made.stdout.splitlines() if line.startswith("run ")]
    assert [(nodes, folder.split("/")[1].split("-")[0]) for nodes, folder in started] == [("1", "single"), ("3", "ddp")]
    (tmp_path / "near.yaml").write_text(TINY)
    array = run("launch-script", "--slurm", "--array", "2", "near.yaml", *options, cwd=tmp_path)
    assert "--set=nodes=3 '--only=arm=ddp|single'" in array.stdout, array.stderr


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["two.yaml"], "--slurm"),
        (["--slurm", "nowhere.yaml"], "nowhere.yaml"),
        (["--slurm", "--array", "0", "two.yaml"], "--array"),
        (["two.yaml", "external.yaml"], "external and local"),
        (["external.yaml", "--set", "nodez=3"], "unknown key 'nodez'"),
        (["external.yaml", "--only", "arm=ddp"], "--only arm=ddp leaves no cell"),
        (["--slurm", "--array", "2", "external.yaml"], "--array is for launcher: local"),
        (["--slurm", "two.yaml", "--set", "compute.device=cuda"], "asks for no GPUs; write 'device: cpu'"),
        (["--slurm", "external.yaml", "--set", "compute.device=cuda"], "asks for no GPUs; write 'device: cpu'"),
        (["--slurm", "--per-host", "2", "two.yaml"], "--per-host is for launcher: external"),
        (["--per-host", "2", "external.yaml", "--set", "nodes=3"], "3 nodes, which cannot be 2 a host"),
    ],
)
def test_mistakes_are_said(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "two.yaml").write_text(TINY)
    external = TINY.replace("{bandwidth: 100 Mbit/s, latency: 1 ms}", "unshaped").replace("name: tiny", "name: far")
    (tmp_path / "external.yaml").write_text(external + "launcher: external\n")
    result = run("launch-script", *arguments, cwd=tmp_path)
    assert result.returncode == 2 and said in result.stderr and not result.stdout
    assert "Traceback" not in result.stderr
