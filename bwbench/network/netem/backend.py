"""Back end ``netem``: the kernel shapes, with three netem qdiscs a node (``shape.py`` says what each of them is for).

    node's data0 ═ n0 ┬ nb0 ┬ nu0 ═ nd0 ┬ core ┬ nd1 ═ nu1 ┬ nb1 ┬ n1 ═ data0 of node 1
                      bridge    veth pair  bridge    ...

A qdisc shapes what leaves an interface: ``up`` sits on nu0 (out to the core), ``line`` on nd0 and ``down`` on n0 (both
back to the node). So the sender's own interface is left alone: netem there would meet TCP's small-queue limit and make
it behave as on no real link. Nothing is redirected: veth, bridge and sch_netem are all that the kernel has to have.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from bwbench.errors import LinkError
from bwbench.network.ack_counter import ACK_FRAME_BYTES, AckCounter
from bwbench.network.backend import AbstractBackend, PairCounter, Port, WireCounters
from bwbench.network.link import Link
from bwbench.network.netem.check import netem_available
from bwbench.network.netem.qdisc import QdiscCounts, add_netem, read_counts, remove_netem
from bwbench.network.netem.shape import NetemQdisc, NodeShape, shape

__all__ = ["NetemBackend", "netem_available"]

CORE = "core"


class NetemBackend(AbstractBackend):
    """Connects the ports through kernel bridges and netem qdiscs.

    Counts what each node sends by the statistics of its ``up`` qdisc: frames that have left it or wait in it. Those
    dropped at its full queue count under ``drops`` alone, with those that were dropped on their way to this node.
    Receivers are not told apart. Acknowledgements are counted as they enter, and taken to be 66 B each, which they are
    as long as no segment is lost.
    """

    name: ClassVar[str] = "netem"

    def __init__(self, link: Link, ports: Sequence[Port]) -> None:
        super().__init__(link, ports)
        self._shape: NodeShape = shape(link)
        self._air: Any = None
        self._indices: dict[str, int] = {}
        self._acks: dict[int, AckCounter] = {}

    def start(self) -> None:
        """Make bridges, pairs and qdiscs.

        Raises LinkError, with everything taken down again, where the kernel refuses or shapes otherwise than asked.
        """
        from pyroute2 import IPRoute
        from pyroute2.netlink.exceptions import NetlinkError

        self._air = IPRoute()
        try:
            self._add_bridge(CORE)
            for port in self.ports:
                self._connect(port)
        except (NetlinkError, OSError, LinkError) as error:
            self.stop()
            if isinstance(error, LinkError):
                raise
            raise LinkError(f"cannot build the netem link: {error}; 'bwbench doctor' says what is missing") from error
        self.applied = self._shape.to_json()

    def stop(self) -> None:
        """Remove what ``start`` made; the ports stay."""
        for counter in self._acks.values():
            counter.close()
        self._acks.clear()
        if self._air is None:
            return
        with contextlib.closing(self._air) as air:
            self._air = None
            for port in self.ports:
                for index in air.link_lookup(ifname=port.interface):
                    remove_netem(air, index)
            ours = [CORE, *(name for port in self.ports for name in _names(port)[:2])]  # a pair's ends go together
            for index in (index for name in ours for index in air.link_lookup(ifname=name)):
                air.link("del", index=index)
        self._indices.clear()

    def counters(self) -> WireCounters:
        """What the nodes have sent, under ``(node, ANY_NODE)``."""
        counts = read_counts(self._air)
        pairs = {}
        for port in self.ports:
            _, uplink, downlink = _names(port)
            up = counts[self._indices[uplink]]
            acks = self._acks[port.node].frames
            pairs[port.node, WireCounters.ANY_NODE] = PairCounter(
                frames=up.sent_frames + up.waiting_frames,
                bytes=up.sent_bytes + up.waiting_bytes,
                ack_frames=acks,
                ack_bytes=acks * ACK_FRAME_BYTES,
                drops=sum(_drops(counts, self._indices[name]) for name in (uplink, downlink, port.interface)),
            )
        return WireCounters(pairs)

    def health(self) -> dict[str, Any]:
        """The kernel is not asked how late it is: the probe says whether the link is what it should be."""
        figures = dict.fromkeys(("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "cpu_s"))
        return {"backend": self.name, "alive": True, **figures, "drops": self.counters().total().drops}

    def _connect(self, port: Port) -> None:
        bridge, uplink, downlink = _names(port)
        self._air.link("add", ifname=uplink, kind="veth", peer={"ifname": downlink})
        for name in (port.interface, uplink, downlink):
            self._indices[name] = self._air.link_lookup(ifname=name)[0]
        self._add_bridge(bridge)
        for name, master in ((port.interface, bridge), (uplink, bridge), (downlink, CORE)):
            self._air.link("set", index=self._indices[name], master=self._indices[master], state="up")
        # Known from the start: a bridge that had to learn would send the first frames to every node.
        self._air.fdb("append", ifindex=self._indices[downlink], lladdr=port.mac, state=_STATIC, flags=_NTF_MASTER)
        self._add(uplink, self._shape.up)
        if self._shape.line is not None:
            self._add(downlink, self._shape.line)
        self._add(port.interface, self._shape.down)
        self._acks[port.node] = AckCounter(port.interface)

    def _add(self, interface: str, qdisc: NetemQdisc) -> None:
        add_netem(self._air, self._indices[interface], qdisc)

    def _add_bridge(self, name: str) -> None:
        # Without multicast snooping a bridge never speaks by itself.
        self._air.link("add", ifname=name, kind="bridge", br_mcast_snooping=0, br_stp_state=0)
        self._indices[name] = self._air.link_lookup(ifname=name)[0]
        self._air.link("set", index=self._indices[name], state="up")


_NTF_MASTER = 0x04  # the bridge's table, not the device's own
_STATIC = 0x40  # NUD_NOARP: never forgotten


def _names(port: Port) -> tuple[str, str, str]:
    """A node's bridge, and the two ends of the pair between it and the core: ours, the core's."""
    return f"nb{port.node}", f"nu{port.node}", f"nd{port.node}"


def _drops(counts: dict[int, QdiscCounts], index: int) -> int:
    return counts[index].drops if index in counts else 0
