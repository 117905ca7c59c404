"""A Ray cluster on this machine: a head without cores, and nodes that can be killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.e2e.program import TAG, family

MEMORY = "80000000"  # Ray takes no less for its objects
QUICK = {  # notice a dead node in two seconds
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@dataclass
class Nodes:
    """The cluster: its address for ``RAY_ADDRESS``, and the process that each node hangs on."""

    folder: Path
    address: str = ""
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *arguments: str) -> None:
        """``ray start ARGUMENTS``, kept in the foreground."""
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        log = (self.folder / f"node{len(self.nodes)}.log").open("wb")
        with log:
            process = subprocess.Popen(
                [*command, f"--object-store-memory={MEMORY}", *arguments],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **QUICK, TAG: str(self.folder)},
                start_new_session=True,
            )
        self.nodes.append(process)

    def kill(self, number: int) -> None:
        """Kill all of Ray on a node, but for the process that runs a cell and what that has started."""
        process = psutil.Process(self.nodes[number].pid)
        family = process.children(recursive=True)
        spared = {p for task in family if task.name().startswith("ray::_carry") for p in task.children(recursive=True)}
        _kill(p for p in [process, *family] if p not in spared and not p.name().startswith("ray::_carry"))


@contextlib.contextmanager
def ray_nodes(*cores: int) -> Iterator[Nodes]:
    """A head without cores and one node for each of ``cores``; everything is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="bwray-", dir="/tmp"))  # sockets have short names only
    nodes = Nodes(folder)
    try:
        nodes.start("--head", "--port=0", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={folder}/ray")
        nodes.address = _address(folder / "ray" / "ray_current_cluster")
        for number in cores:
            nodes.start(f"--address={nodes.address}", f"--num-cpus={number}")
        yield nodes
    finally:
        _end(folder, nodes.nodes)
        shutil.rmtree(folder, ignore_errors=True)


def _address(file: Path, limit_s: float = 60.0) -> str:
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if text := file.read_text().strip():
                return text
        time.sleep(0.1)
    raise AssertionError(f"Ray's head has not started within {limit_s} s")


def _end(folder: Path, nodes: list[subprocess.Popen[bytes]]) -> None:
    for node in nodes:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(node.pid)  # processes that Ray renames lose their environment with their name
            _kill([process, *process.children(recursive=True)])
        node.wait(10)
    _kill(family(folder))


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
