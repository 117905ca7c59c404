"""The parent's side of a network: open it, start processes in its nodes, read its counters, close it.

with open_network(link, num_nodes=4) as network:
    process = network.spawn(0, ["ping", "-c1", network.nodes[1].data_address], stdout=1)
    process.wait(timeout_s=5)
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bwbench.base.errors import ConfigError, Problem
from bwbench.network.addresses import MAX_NODES, NodeAddresses
from bwbench.network.agent_client import AgentClient
from bwbench.network.backend import WireCounters
from bwbench.network.link import Link
from bwbench.network.link.consistency import unknown_nodes
from bwbench.network.node_process import NodeProcess

__all__ = ["Network", "NodeAddresses", "NodeProcess", "open_network"]

OPEN_LIMIT_S = 120.0  # 254 nodes on a busy machine take nearly a minute
REQUEST_LIMIT_S = 15.0


@contextmanager
def open_network(link: Link, num_nodes: int) -> Iterator[Network]:
    """A network of ``num_nodes`` nodes with ``link`` between them, for as long as the block lasts.

    Everything that it makes (processes, namespaces, interfaces) ends with the block, and with this process however it
    ends, SIGKILL included. Call it from the main thread: the kernel's notice of a parent's death is bound to the thread
    that started a child, so from another thread the end of a socket has to do, which a forked copy of this process
    would hold open.

    Raises:
        UnfitMachineError: no rights to make namespaces, or the kernel lacks what the link needs.
        ConfigError: the link asks for a back end that cannot carry it, or ``num_nodes`` is out of range.
    """
    network = Network(link, num_nodes)
    try:
        yield network
    finally:
        network.close()


class Network:
    """An open network; made by ``open_network``. Its methods may be called from any thread.

    Attributes:
        nodes: the nodes' addresses and interfaces.
        backend: what carries the link: ``relay``, ``netem`` or ``unshaped``.
        backend_reason: why this one was chosen.
        applied: the parameters really set, JSON-able.
    """

    def __init__(self, link: Link, num_nodes: int) -> None:
        if not 1 <= num_nodes <= MAX_NODES:
            raise ConfigError(f"nodes: {num_nodes} is out of range: 1 to {MAX_NODES} on one machine")
        if wrong := unknown_nodes(link, num_nodes):
            raise ConfigError([Problem(f"link.{key}: {text}") for key, text in wrong])
        self._agent = AgentClient()
        try:
            asked = link.model_dump(mode="json", by_alias=True)
            reply = self._agent.request("open", OPEN_LIMIT_S, link=asked, num_nodes=num_nodes)
        except BaseException:
            self._agent.close()
            raise
        self.nodes = tuple(NodeAddresses(**node) for node in reply["nodes"])
        self.backend: str = reply["backend"]
        self.backend_reason: str = reply["backend_reason"]
        self.applied: dict[str, Any] = reply["applied"]

    def spawn(
        self,
        node: int,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Mapping[int, int] | None = None,
    ) -> NodeProcess:
        """Start a process in a node, in a session of its own.

        Args:
            node: number of the node, from 0.
            argv: program and arguments; the program is looked up in ``env``'s PATH.
            env: its whole environment; None passes on ours.
            cwd: its working directory; None passes on ours.
            stdout, stderr: file descriptors of ours; None is /dev/null, as its standard input always is.
            pass_fds: descriptor numbers in the child to descriptors of ours.

        Raises LaunchError where the program cannot be started.
        """
        fds = dict(pass_fds or {})
        fds.update({number: fd for number, fd in ((1, stdout), (2, stderr)) if fd is not None})
        exit_read, exit_write = os.pipe()
        try:
            reply = self._agent.request(
                "spawn",
                REQUEST_LIMIT_S,
                fds=[exit_write, *fds.values()],
                node=node,
                argv=[os.fspath(word) for word in argv],
                env=dict(os.environ if env is None else env),
                cwd=os.fspath(cwd) if cwd is not None else os.getcwd(),
                targets=list(fds),
            )
        except BaseException:
            os.close(exit_read)
            raise
        finally:
            os.close(exit_write)
        return NodeProcess(reply["pid"], exit_read, lambda number: self._signal(reply["child"], number))

    def counters(self) -> WireCounters:
        """What has crossed the link so far, pair by pair."""
        return WireCounters.from_json(self._agent.request("counters", REQUEST_LIMIT_S)["counters"])

    def health(self) -> dict[str, Any]:
        """How well the back end keeps up: ``{"backend", "alive", "lateness_p99_s", "cpu_s", "drops", …}``."""
        health: dict[str, Any] = self._agent.request("health", REQUEST_LIMIT_S)["health"]
        return health

    def play(self, at_s: float = 0.0) -> None:
        """Let what varies about the link (traces, outages) begin now, or go on from ``at_s``; a second call likewise.

        Before that, and after ``hold``, the link is steady, so that it can be measured: traces are at their mean rates,
        and there are no outages. Nothing happens on a link that is constant.
        """
        self._agent.request("play", REQUEST_LIMIT_S, at_s=at_s)

    def hold(self) -> None:
        """Make the link steady again; see ``play``."""
        self._agent.request("hold", REQUEST_LIMIT_S)

    def close(self) -> None:
        """End everything in the network. Safe to call twice."""
        self._agent.close()

    def _signal(self, child: int, number: int) -> None:
        self._agent.request("signal", REQUEST_LIMIT_S, child=child, number=number)
