"""The programs in examples/, and a recording between two nodes of a known link."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bwbench import Link, emulate
from tests.netns.nodes import REPOSITORY

pytestmark = [pytest.mark.netns]

LIMIT_S = 60.0


def example(*words: str) -> str:
    command = [sys.executable, *words]
    done = subprocess.run(command, cwd=REPOSITORY / "examples", capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_web_server_behind_an_outage() -> None:
    lines = example("web_server.py").splitlines()
    quick, slow = (float(line.split(" in ")[1].removesuffix(" s")) for line in lines[1:])
    assert all("200000 bytes" in line for line in lines[1:])
    assert slow > 0.9 and quick > 0.1  # 200 kB at 16 Mbit/s; the outage lasts a second


def test_iperf3_on_wifi() -> None:
    if shutil.which("iperf3") is None:
        pytest.skip("iperf3 is not installed")
    output = example("iperf3_on_wifi.py", "wifi-802.11g-good", "1")
    rates = [float(line.split(": ")[1].removesuffix(" Mbit/s")) for line in output.splitlines()[1:4]]
    assert 0 < rates[0] < 54 / 2 and all(0 < rate for rate in rates)


def test_iperf3_that_is_missing_is_said() -> None:
    code = "import os, runpy; os.environ['PATH'] = ''; runpy.run_path('iperf3_on_wifi.py', run_name='__main__')"
    assert "not installed" in example("-c", code)


def test_mpirun_starts_its_daemons_without_ssh(tmp_path: Path) -> None:
    stand_in = tmp_path / "mpirun"
    stand_in.write_text(
        """#!/bin/sh
echo "$@"
$PRTE_MCA_plm_ssh_agent node1 'echo from $(hostname); exit 3'
echo "it ended with $?"
"""
    )
    stand_in.chmod(0o755)
    command = [sys.executable, "-m", "bwbench.cli.main", "link", "run", "--nodes", "3", "--bandwidth", "10 Mbit/s"]
    done = subprocess.run(
        [*command, "--", sys.executable, "examples/mpi_in_nodes.py", "-np", "2", "hello"],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr  # node 2 too, which mpirun had no use for
    words = ["[0] --host node0,node1,node2 -np 2 hello", "[0] it ended with 3", "[1] from node1"]
    assert sorted(done.stdout.splitlines()) == words


def test_a_link_is_recorded_and_played_back(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bwbench.cli.main", "link", "record"]
    link = Link(bandwidth="8 Mbit/s", latency="5 ms", backend="relay")
    with emulate(link, num_nodes=2) as nodes:
        listening = [*command, "--listen", "--token", "secret", "--duration", "1 min"]
        listener = nodes[0].popen(listening, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert listener.stderr is not None and "--token secret" in listener.stderr.readline()
        words = ["--to", nodes[0].address, "--token", "secret", "--duration", "2 s", "--out", str(tmp_path / "r.tsv")]
        done = nodes[1].run(
            [*command, *words, "--json"], capture_output=True, text=True, cwd=REPOSITORY, timeout=LIMIT_S
        )
        listener.kill()
        listener.communicate(timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert [row["direction"] for row in content["recorded"]] == ["down", "up"]
    for row in content["recorded"]:
        assert 3e6 < row["mean_goodput_bps"] < 9e6
    assert min(content["idle_rtt_s"]) > 0.009
    played = Link.model_validate(content["link"])
    assert played.varies and played.latency_s > 0.004
