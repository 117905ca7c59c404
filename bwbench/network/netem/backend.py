"""Back end ``netem``: the kernel shapes (``shape.py``: with which qdiscs; ``layout.py``: where they are)."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, ClassVar

from bwbench.base.errors import LinkError
from bwbench.network.ack_counter import ACK_FRAME_BYTES, AckCounter
from bwbench.network.backend import AbstractBackend, PairCounter, Port, WireCounters
from bwbench.network.link import Link
from bwbench.network.netem.applied import applied
from bwbench.network.netem.check import netem_available
from bwbench.network.netem.layout import CORE, NodeLayout, layout
from bwbench.network.netem.qdisc import add_netem, check_netem, read_counts, remove_netem
from bwbench.network.netem.shape import shape

__all__ = ["NetemBackend", "netem_available"]


class NetemBackend(AbstractBackend):
    """Connects the ports through kernel bridges and netem qdiscs.

    Counts what each node sends by the statistics of its ``up`` qdisc: frames that have left it or wait in it. Those
    dropped at its full queue count under ``drops`` alone, with those that the link lost on their way out of this node
    or into it. Receivers are not told apart. Acknowledgements are counted as they enter, and taken to be 66 B each,
    which they are as long as no segment is lost.
    """

    name: ClassVar[str] = "netem"

    def __init__(self, link: Link, ports: Sequence[Port]) -> None:
        super().__init__(link, ports)
        self._shapes = shape(link, len(ports))
        self._layouts = [layout(port, node) for port, node in zip(self.ports, self._shapes, strict=True)]
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
            for node in self._layouts:
                self._connect(node)
            asked = {self._indices[name]: qdisc for node in self._layouts for name, qdisc in node.qdiscs.values()}
            taken = check_netem(self._air, asked)
        except (NetlinkError, OSError, LinkError) as error:
            self.stop()
            if isinstance(error, LinkError):
                raise
            raise LinkError(f"cannot build the netem link: {error}; 'bwbench doctor' says what is missing") from error
        seeds_taken = [taken[index].seed == qdisc.seed for index, qdisc in asked.items() if qdisc.seed is not None]
        self.applied = applied(self.link, self._shapes, all(seeds_taken) if seeds_taken else None)

    def stop(self) -> None:
        """Remove what ``start`` made; the ports stay."""
        for counter in self._acks.values():
            counter.close()
        self._acks.clear()
        if self._air is None:
            return
        with contextlib.closing(self._air) as air:
            self._air = None
            indices = {link.get_attr("IFLA_IFNAME"): link["index"] for link in air.get_links()}
            remove_netem(air, [indices[port.interface] for port in self.ports if port.interface in indices])
            ours = [CORE]
            for node in self._layouts:
                ours += [*node.bridges, *(one for one, _ in node.pairs)]  # a pair's ends go together
            for name in ours:
                if name in indices:
                    air.link("del", index=indices[name])
        self._indices.clear()

    def counters(self) -> WireCounters:
        """What the nodes have sent, under ``(node, ANY_NODE)``."""
        counts = read_counts(self._air)
        pairs = {}
        for node in self._layouts:
            up = counts[self._indices[node.uplink]]
            acks = self._acks[node.port.node].frames
            pairs[node.port.node, WireCounters.ANY_NODE] = PairCounter(
                frames=up.sent_frames + up.waiting_frames,
                bytes=up.sent_bytes + up.waiting_bytes,
                ack_frames=acks,
                ack_bytes=acks * ACK_FRAME_BYTES,
                drops=sum(counts[self._indices[name]].drops for name, _ in node.qdiscs.values()),
            )
        return WireCounters(pairs)

    def health(self) -> dict[str, Any]:
        """The kernel is not asked how late it is: the probe says whether the link is what it should be."""
        figures = dict.fromkeys(("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "cpu_s"))
        return {"backend": self.name, "alive": True, **figures, "drops": self.counters().total().drops}

    def _connect(self, node: NodeLayout) -> None:
        air = self._air
        self._learn(node.port.interface)
        for name in node.bridges:
            self._add_bridge(name)
        for one, other in node.pairs:
            air.link("add", ifname=one, kind="veth", peer={"ifname": other})
            for name in (one, other):
                self._learn(name)
        for name, bridge in node.masters:
            air.link("set", index=self._indices[name], master=self._indices[bridge], state="up")
        # Known from the start: a bridge that had to learn would send the first frames to every node.
        core_end = self._indices[node.core_end]
        air.fdb("append", ifindex=core_end, lladdr=node.port.mac, state=_STATIC, flags=_NTF_MASTER)
        for name, qdisc in node.qdiscs.values():
            add_netem(air, self._indices[name], qdisc)
        self._acks[node.port.node] = AckCounter(node.port.interface)

    def _add_bridge(self, name: str) -> None:
        # Without multicast snooping a bridge never speaks by itself.
        self._air.link("add", ifname=name, kind="bridge", br_mcast_snooping=0, br_stp_state=0)
        self._learn(name)
        self._air.link("set", index=self._indices[name], state="up")

    def _learn(self, name: str) -> None:
        self._indices[name] = self._air.link_lookup(ifname=name)[0]


_NTF_MASTER = 0x04  # the bridge's table, not the device's own
_STATIC = 0x40  # NUD_NOARP: never forgotten
