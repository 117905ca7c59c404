"""Any programs on a shaped link, from Python.

import subprocess, time
from bwbench import Link, emulate

if __name__ == "__main__":
    with emulate(Link(bandwidth="10 Mbit/s", latency="5 ms"), num_nodes=2) as nodes:
        server = nodes[0].popen(["iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL)
        time.sleep(0.5)
        client = nodes[1].run(["iperf3", "--client", nodes[0].address], capture_output=True, text=True)
        print(client.stdout, nodes.counters().total())
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, CalledProcessError, CompletedProcess, TimeoutExpired
from typing import Any, overload

from bwbench.network.link import Link
from bwbench.network.link.trace_file import freeze_link
from bwbench.network.namespaces.addresses import node_environment
from bwbench.network.namespaces.backend import WireCounters
from bwbench.network.network import Network, open_network
from bwbench.network.node_popen import NodePopen, Stream
from bwbench.network.probe.measurement import LinkMeasurement

KILL_LIMIT_S = 5.0


@contextmanager
def emulate(link: Link | Mapping[str, Any] | str, num_nodes: int) -> Iterator[Nodes]:
    """Nodes with ``link`` between them, for as long as the block lasts; what still runs in them ends with it.

    The nodes are network namespaces on this machine and see only each other. Needs no root where the kernel lets users
    make namespaces. Call it from the main thread; see ``open_network``.

    Args:
        link: a ``Link``, its keys as in an experiment file, or the name of a preset. Traces are relative to the working
            directory. What varies over time (traces, outages) stands still until ``play``.
        num_nodes: 1 to 254.

    Raises:
        pydantic.ValidationError (a ValueError): the keys make no link.
        ConfigError: a trace cannot be read, or the back end that was asked for cannot carry the link.
        UnfitMachineError: no rights to make namespaces, or the kernel lacks what the link needs.
    """
    if not isinstance(link, Link):
        named = isinstance(link, str) and link != "unshaped"
        link = Link.model_validate({"preset": link} if named else link)
    link = freeze_link(link, Path.cwd())
    with open_network(link, num_nodes) as network:
        yield Nodes(network, link)


class Node:
    """One node: a place to start processes in.

    Attributes:
        rank: its number, from 0.
        address: IPv4 address on the shaped network.
        control_address: the same on the unshaped network beside it, for what is not to be measured.
        interface: name of its shaped interface.
        environment: BWBENCH_RANK, BWBENCH_NODES and BWBENCH_ADDRESS, which ``popen`` adds to our own environment.
    """

    def __init__(self, network: Network, rank: int) -> None:
        self._network = network
        self.rank = rank
        self.address = network.nodes[rank].data_address
        self.control_address = network.nodes[rank].control_address
        self.interface = network.nodes[rank].data_interface
        self.environment = node_environment(rank, network.nodes)

    def popen(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        text: bool = False,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
    ) -> NodePopen:
        """Start a program in this node, as ``subprocess.Popen`` would; raises LaunchError where that fails.

        ``env`` is its whole environment; None is ours and ``environment``.
        """
        env = {**os.environ, **self.environment} if env is None else env
        return NodePopen(self._network, self.rank, args, stdin, stdout, stderr, text, env, cwd)

    def run(
        self,
        args: Sequence[str | os.PathLike[str]],
        *,
        input: Any = None,
        capture_output: bool = False,
        timeout: float | None = None,
        check: bool = False,
        **options: Any,
    ) -> CompletedProcess[Any]:
        """Run a program in this node to its end, as ``subprocess.run`` would; ``options`` are those of ``popen``."""
        if input is not None:
            options["stdin"] = PIPE
        if capture_output:
            options.update(stdout=PIPE, stderr=PIPE)
        process = self.popen(args, **options)
        try:
            out, err = process.communicate(input, timeout)
        except TimeoutExpired as error:
            process.kill()
            error.stdout, error.stderr = process.communicate(timeout=KILL_LIMIT_S)
            raise
        except BaseException:
            process.kill()
            raise
        returncode = process.wait()
        if check and returncode:
            raise CalledProcessError(returncode, process.args, out, err)
        return CompletedProcess(process.args, returncode, out, err)


class Nodes(Sequence[Node]):
    """All nodes of a network.

    Attributes:
        network: what lies below, with ``backend``, ``applied`` and ``health()``.
        link: as asked, with its traces read.
    """

    def __init__(self, network: Network, link: Link) -> None:
        self.network = network
        self.link = link
        self._nodes = tuple(Node(network, rank) for rank in range(len(network.nodes)))

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Node]: ...
    def __getitem__(self, index: int | slice) -> Node | Sequence[Node]:
        return self._nodes[index]

    def verify(self, tolerance: float = 0.05) -> LinkMeasurement:
        """Measure the link between neighbours, which takes seconds and wants it idle; see ``probe.verify``."""
        from bwbench.network.probe.verification import verify

        return verify(self.network, self.link, len(self), tolerance)

    def counters(self) -> WireCounters:
        """What has crossed the link so far, pair by pair; ``counters().total()`` is the sum."""
        return self.network.counters()

    def play(self) -> None:
        """Let traces and outages begin now."""
        self.network.play()

    def hold(self) -> None:
        """Make the link steady again: mean rates, no outage."""
        self.network.hold()
