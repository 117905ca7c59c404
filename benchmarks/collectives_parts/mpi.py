"""OpenMPI's MPI_Allreduce between the same nodes, where it is installed: a third party.

mpirun starts its daemons on other hosts by ssh. Here a small program takes ssh's place: it writes down which command it
was given for which address, and the benchmark, which may start processes in nodes, starts it there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bwbench.network.namespaces.addresses import CONTROL_INTERFACE, control_address
from bwbench.network.network import Network, NodeProcess

PYTHON = "BWBENCH_MPI_PYTHON"  # environment variable: a Python that has mpi4py, where this one has not
TIME_LIMIT_S = 300.0
START_LIMIT_S = 60.0  # of the check whether MPI works at all


def missing() -> str | None:
    """Why MPI cannot be measured; None where it can."""
    if shutil.which("mpirun") is None:
        return "mpirun is not installed (Debian: openmpi-bin, libopenmpi3)"
    try:
        check = subprocess.run(
            [_python(), "-c", "from mpi4py import MPI; print(MPI.Get_library_version())"],
            capture_output=True,
            text=True,
            timeout=START_LIMIT_S,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"mpi4py cannot be tried: {error}"
    if check.returncode != 0:
        return f"{_python()} has no working mpi4py (name one that has in {PYTHON})"
    return None if "Open MPI" in check.stdout else "the MPI that mpi4py finds is not OpenMPI"


def times_of(network: Network, payloads: Sequence[int], runs: int, folder: Path) -> dict[str, list[float]]:
    """Seconds of the slowest rank, in each run, under ``"mpi <payload bytes>"``."""
    mailbox, out = folder / "mailbox", folder / "mpi.json"
    mailbox.mkdir()
    hosts = ",".join(f"{control_address(number)}:1" for number in range(len(network.nodes)))
    node = network.nodes[0]
    settings = {
        "plm_rsh_agent": f"{sys.executable} {Path(__file__).with_name('mpi_agent.py')} {mailbox}",
        "plm_rsh_no_tree_spawn": "1",
        "btl": "tcp,self",  # never shared memory, though all nodes are one machine
        "btl_tcp_if_include": node.data_interface,
        "oob_tcp_if_include": CONTROL_INTERFACE,
        "coll": "^sm",
        "pml": "ob1",
    }
    argv = ["mpirun", "-np", str(len(network.nodes)), "--host", hosts, "--bind-to", "none"]
    argv += [word for name, value in settings.items() for word in ("--mca", name, value)]
    asked = json.dumps([str(out), list(payloads), runs])
    argv += [_python(), str(Path(__file__).with_name("mpi_rank.py")), asked]
    # Root may start it: what it runs as root of is a namespace of its own.
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    environment = {**os.environ, **allowed}
    starter = network.spawn(0, argv, env=environment, stdout=2, stderr=2)
    _deliver(network, starter, mailbox, environment)
    times: dict[str, list[float]] = json.loads(out.read_text())
    return times


def _deliver(network: Network, starter: NodeProcess, mailbox: Path, environment: dict[str, str]) -> None:
    """Start in the nodes what the agents ask for, until mpirun has ended."""
    numbers = {control_address(number): number for number in range(len(network.nodes))}
    daemons: dict[Path, NodeProcess] = {}
    deadline = time.monotonic() + TIME_LIMIT_S
    while (status := starter.wait(0.05)) is None:
        for letter in mailbox.glob("*.json"):
            if letter not in daemons:
                address, command = json.loads(letter.read_text())
                argv = ["/bin/sh", "-c", command]
                daemons[letter] = network.spawn(numbers[address], argv, env=environment, stdout=2, stderr=2)
        for letter, daemon in daemons.items():
            if (code := daemon.poll()) is not None:
                letter.with_suffix(".status").write_text(str(code))
        if time.monotonic() > deadline:
            raise SystemExit(f"MPI took longer than {TIME_LIMIT_S} s")
    if status != 0:
        raise SystemExit(f"mpirun ended with status {status}")


def _python() -> str:
    return os.environ.get(PYTHON, sys.executable)
