"""The batch file for Slurm: bash reads it, its body runs, and no value is ever interpreted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bwbench.running.cluster.job_scripts import ScriptSetting, array_script

HOSTILE = ["plain.yaml", "two words.yaml", "quote's.yaml", '"$(touch hit)`touch hit`".yaml', "line\nbreak; touch hit"]
ECHO = f"#!{sys.executable}\nimport json, os, sys\nprint(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))\n"
BWBENCH = ["-m", "bwbench.cli.main"]
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=30)


@pytest.fixture
def echo(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that says what it was given, whose name has to be quoted."""
    file = tmp_path_factory.mktemp("it's here") / "python"
    file.write_text(ECHO)
    file.chmod(0o755)
    return str(file)


def run_body(script: str, task: int, folder: Path) -> tuple[list[str], str, dict[str, str]]:
    """What the command of a task was given, where, and with which environment."""
    file = folder / "job.sh"
    file.write_text(script, encoding="utf-8")
    assert subprocess.run(["bash", "-n", file], capture_output=True).stderr == b""
    environment = {"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": str(task), "PYTHONUTF8": "1"}
    result = subprocess.run(["bash", file], env=environment, cwd="/", capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr
    words, where, got = json.loads(result.stdout)
    return words, where, got


@pytest.mark.parametrize("name", HOSTILE)
def test_values_reach_the_command_as_they_are(name: str, echo: str, tmp_path: Path) -> None:
    folder = tmp_path / name.replace("/", "_")
    folder.mkdir()
    script = array_script([name, "-x.yaml"], 7, ScriptSetting(echo, str(folder), name, {"BWBENCH_DATA": name}))
    words, where, environment = run_body(script, 3, tmp_path)
    assert words == [*BWBENCH, "sweep", f"--results={name}", "--shard", "3/7", "--", name, "-x.yaml"]
    assert where == str(folder) and environment["BWBENCH_DATA"] == name
    assert {path.name for path in tmp_path.rglob("*")} == {"job.sh", folder.name}


@given(name=NAMES)
@settings(max_examples=200, deadline=None)
def test_no_value_gets_into_the_lines_that_slurm_reads(name: str) -> None:
    script = array_script([name], 2, ScriptSetting("python", name, name, {"BWBENCH_DATA": name}))
    header = script.partition("\nset -eu\n")[0].split("\n")
    assert len(header) == 9 and all(line.startswith("#") for line in header)
    assert re.fullmatch(r"#SBATCH --job-name=[A-Za-z0-9._-]+", header[1])
    assert "%" not in "".join(line for line in header if line.startswith("#SBATCH"))


def test_every_task_has_a_shard(echo: str, tmp_path: Path) -> None:
    script = array_script(["a.yaml"], 3, ScriptSetting(echo, str(tmp_path), "results", {}))
    assert "#SBATCH --array=1-3\n" in script
    assert [run_body(script, task, tmp_path)[0][5] for task in (1, 2, 3)] == ["1/3", "2/3", "3/3"]
