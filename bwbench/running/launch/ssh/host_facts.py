"""What a host can do, told by itself.

``python -m bwbench.running.launch.ssh.host_facts facts`` reads a request and answers with a line of JSON.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import Mapping, Sequence

import psutil

from bwbench.base.errors import ConfigError
from bwbench.base.listening import listening_socket
from bwbench.base.registry import DATASETS
from bwbench.experiment.plan.cell import Cell, plugins_named
from bwbench.records.environment import capture_environment
from bwbench.records.schema import Environment, JsonObject, Record
from bwbench.running.launch.liveness import FOREIGN_PROC, proc_is_own
from bwbench.running.launch.ssh.keeper import STATE
from bwbench.training.datasets.dataset import DATA_VARIABLE, data_folder

REACH_LIMIT_S = 5.0
LISTEN_LIMIT_S = 60.0


class PreflightFacts(Record):
    """What the controller wants to know of a host before anything starts.

    Attributes:
        environment: as environment.json of an attempt there would begin.
        proc_problem: why no process can be watched there; None where they can.
        time_unix_s: by its clock.
        free_bytes: of the disk that runs write to.
        memory_bytes: that a program could get.
        addresses: IPv4, by interface.
        ssh_address, ssh_port: that this connection came in at; empty and None where it is none of ssh.
        port: that is free.
        missing_data: what data sets of the cells lack there, and files of models' shapes, in words.
    """

    environment: Environment
    time_unix_s: float
    free_bytes: int
    memory_bytes: int
    port: int
    proc_problem: str | None = None
    addresses: Mapping[str, tuple[str, ...]] = {}
    ssh_address: str | None = None
    ssh_port: int | None = None
    missing_data: tuple[str, ...] = ()


def host_facts(cells: Sequence[JsonObject]) -> PreflightFacts:
    """What there is to say of this machine.

    Args:
        cells: cell.json of one cell for each data set, and each model of shapes, that will be needed.
    """
    STATE.mkdir(parents=True, exist_ok=True, mode=0o700)
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = int(probe.getsockname()[1])
    missing: list[str] = []
    for content in cells:
        try:
            plugins = [str(plugin) for plugin in plugins_named(content)]  # of the plan, whose controller asks
            config = Cell.from_json(content, plugins).config
            _ = config.shapes  # of which a file may be missing here
            lacking = config.dataset.source.build(DATASETS).unfit(data_folder())
        except ConfigError as error:
            lacking = error
        missing += [] if lacking is None else [str(lacking)]
    connection = (os.environ.get("SSH_CONNECTION") or "").split()  # their address and port, then ours
    return PreflightFacts(
        environment=capture_environment(),
        proc_problem=None if proc_is_own() else FOREIGN_PROC,
        time_unix_s=time.time(),
        free_bytes=shutil.disk_usage(STATE).free,
        memory_bytes=psutil.virtual_memory().available,
        addresses={
            name: tuple(found.address for found in all_found if found.family == socket.AF_INET)
            for name, all_found in psutil.net_if_addrs().items()
        },
        ssh_address=connection[2] if len(connection) > 2 else None,
        ssh_port=int(connection[3]) if len(connection) > 3 else None,
        port=port,
        missing_data=tuple(missing),
    )


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


def main(arguments: list[str]) -> int:
    """``facts`` (request on standard input), ``listen ADDRESS PORT`` or ``reach ADDRESS PORT``."""
    if arguments[0] == "facts":
        request = json.loads(sys.stdin.readline())
        if request.get("data"):
            os.environ[DATA_VARIABLE] = request["data"]
        print(json.dumps(host_facts(request["cells"]).to_json()))
    elif arguments[0] == "listen":
        listen(arguments[1], int(arguments[2]))
    else:
        problem = None  # None where the port can be reached from here
        try:
            socket.create_connection((arguments[1], int(arguments[2])), REACH_LIMIT_S).close()
        except OSError as error:
            problem = error.strerror or str(error)
        print(json.dumps({"problem": problem}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
