"""A Ray cluster on this machine: a head without cores, and nodes that can be killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.e2e.program import TAG, family, wait_for

TRIES = 3  # a node gives up when it could not join within 30 s, which a busy machine may need; and of clusters
MEMORY = "80000000"  # Ray takes no less for its objects
QUICK = {  # notice a dead node in two seconds
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class NoNode(AssertionError):
    """A node of Ray did not join its cluster; what it said."""


@dataclass
class Nodes:
    """The cluster: its address for ``RAY_ADDRESS``, and the process that each node hangs on."""

    folder: Path
    address: str = ""
    nodes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, number: int, *arguments: str) -> None:
        """``ray start ARGUMENTS``, kept in the foreground; returns once the node is part of the cluster."""
        command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats"]
        command += [f"--object-store-memory={MEMORY}", "--include-log-monitor=false", *arguments]
        environment = {**os.environ, **QUICK, TAG: str(self.folder)}
        log = self.folder / f"node{number}.log"
        for _ in range(TRIES):
            with log.open("wb") as file:
                process = subprocess.Popen(
                    command, stdout=file, stderr=file, cwd=self.folder, env=environment, start_new_session=True
                )
            self.nodes[number] = process
            wait_for(lambda: "Ray runtime started" in log.read_text() or process.poll(), 120, "a node of Ray")  # noqa: B023
            if process.poll() is None:
                return
        raise NoNode(log.read_text())

    def runs_a_cell(self, number: int) -> bool:
        """Whether a cell is under way on a node at this moment."""
        try:
            family = psutil.Process(self.nodes[number].pid).children(recursive=True)
            return any(p.name().startswith("ray::_carry") and p.children() for p in family)
        except psutil.Error:
            return False

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
        for clusters_left in reversed(range(TRIES)):
            try:
                _gather(nodes, cores)
                break
            except NoNode:  # a head that has come up ill answers nobody, however often a node asks: another one
                _end(folder, nodes.nodes.values())
                if not clusters_left:
                    raise
        yield nodes
    finally:
        _end(folder, nodes.nodes.values())
        shutil.rmtree(folder, ignore_errors=True)


def _gather(nodes: Nodes, cores: Sequence[int]) -> None:
    """A new head, and nodes that have joined it."""
    own = Path(tempfile.mkdtemp(dir=nodes.folder))
    nodes.start(0, "--head", "--port=0", "--num-cpus=0", "--include-dashboard=false", f"--temp-dir={own}")
    address = own / "ray_current_cluster"  # written after Ray has said that it runs
    nodes.address = wait_for(lambda: address.is_file() and address.read_text().strip(), 60, "the head's address")
    with ThreadPoolExecutor() as side_by_side:  # a node mostly waits for the others
        joined = [
            side_by_side.submit(nodes.start, number, f"--address={nodes.address}", f"--num-cpus={count}")
            for number, count in enumerate(cores, 1)
        ]
    for node in joined:
        node.result()


def _end(folder: Path, nodes: Iterable[subprocess.Popen[bytes]]) -> None:
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
