"""What a host can do, told by itself: ``python -m bwbench.running.launch.ssh.facts`` reads a request, prints JSON."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import time
from typing import Any

import psutil

from bwbench.base.errors import ConfigError
from bwbench.base.listening import listening_socket
from bwbench.base.registry import DATASETS
from bwbench.experiment.plan.cell import Cell
from bwbench.records.environment import capture_environment
from bwbench.running.launch.own_proc import PROBLEM, proc_is_own
from bwbench.running.launch.ssh.keeper import STATE
from bwbench.training.datasets.folder import VARIABLE, data_folder

REACH_LIMIT_S = 5.0
LISTEN_LIMIT_S = 60.0


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """What the controller wants to know before anything starts.

    Args:
        request: ``interface`` or null; ``cells``: cell.json of one cell for each data set that will be needed.
    """
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    addresses = {
        name: [found.address for found in all_found if found.family == socket.AF_INET]
        for name, all_found in psutil.net_if_addrs().items()
    }
    connection = (os.environ.get("SSH_CONNECTION") or "").split()  # their address and port, then ours
    return {
        "environment": capture_environment(),
        "proc_problem": None if proc_is_own() else PROBLEM,
        "time_unix_s": time.time(),
        "free_bytes": shutil.disk_usage(STATE).free,
        "memory_bytes": psutil.virtual_memory().available,
        "addresses": addresses,
        "ssh_address": connection[2:3],
        "ssh_port": int(connection[3]) if len(connection) > 3 else None,
        "port": _free_port(),
        "missing_data": _missing_data(request["cells"]),
    }


def _missing_data(cells: list[dict[str, Any]]) -> list[str]:
    """What the data sets of ``cells`` lack here, in words."""
    problems = []
    for content in cells:
        try:
            missing = Cell.from_json(content).config.dataset.source.build(DATASETS).missing(data_folder())
        except ConfigError as error:
            missing = error
        if missing is not None:
            problems.append(str(missing))
    return problems


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def listen(address: str, port: int) -> None:
    """Let every caller in, until standard input ends or nobody has come for a while."""
    with listening_socket(address, port) as server:
        print("listening", flush=True)
        while True:
            ready, _, _ = select.select([server, sys.stdin], [], [], LISTEN_LIMIT_S)
            if server in ready:
                server.accept()[0].close()
            if sys.stdin in ready or not ready:
                return


def reach(address: str, port: int) -> str | None:
    """Why a port cannot be reached from here; None where it can."""
    try:
        socket.create_connection((address, port), REACH_LIMIT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def main(arguments: list[str]) -> int:
    """``facts`` (request on standard input), ``listen ADDRESS PORT`` or ``reach ADDRESS PORT``."""
    if arguments[0] == "facts":
        request = json.loads(sys.stdin.readline())
        if request.get("data"):
            os.environ[VARIABLE] = request["data"]
        print(json.dumps(facts(request)))
    elif arguments[0] == "listen":
        listen(arguments[1], int(arguments[2]))
    else:
        print(json.dumps({"problem": reach(arguments[1], int(arguments[2]))}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
