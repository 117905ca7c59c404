"""Back end ``unshaped``: a plain bridge, as fast as the machine."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from bwbench.base.errors import LinkError
from bwbench.network.ack_counter import ACK_FRAME_BYTES, AckCounter
from bwbench.network.backend import AbstractBackend, PairCounter, WireCounters

BRIDGE = "air"
_COUNTING_QDISC = "pfifo"  # holds nothing here, as a veth takes every packet at once; it is in every kernel that has tc
_LIMIT_PACKETS = 100_000


class UnshapedBackend(AbstractBackend):
    """Connects the ports by a kernel bridge.

    Counts all nodes together, under ``(ANY_NODE, ANY_NODE)``, by the statistics of a queueing discipline at each port:
    unlike those of an interface they count every segment of a super-packet, with its headers.
    """

    name: ClassVar[str] = "unshaped"
    _air: Any = None

    def start(self) -> None:
        """Make the bridge, attach the ports, count what leaves through them; raises LinkError."""
        from pyroute2 import IPRoute
        from pyroute2.netlink.exceptions import NetlinkError

        self._air = IPRoute()
        self._acks: list[AckCounter] = []
        try:
            # Without multicast snooping a bridge never speaks by itself.
            self._air.link("add", ifname=BRIDGE, kind="bridge", br_mcast_snooping=0)
            bridge = self._air.link_lookup(ifname=BRIDGE)[0]
            self._air.link("set", index=bridge, state="up")
            for port in self.ports:
                index = self._air.link_lookup(ifname=port.interface)[0]
                self._air.tc("add", _COUNTING_QDISC, index, limit=_LIMIT_PACKETS)
                self._air.link("set", index=index, master=bridge)
                self._acks.append(AckCounter(port.interface))
        except (NetlinkError, OSError) as error:
            self.stop()
            raise LinkError(f"cannot bridge the nodes: {error}; 'bwbench doctor' says what is missing") from error
        self.applied = {"bridge": BRIDGE}

    def stop(self) -> None:
        """Remove the bridge and the counters."""
        if self._air is None:
            return
        for counter in self._acks:
            counter.close()
        with contextlib.closing(self._air) as air:
            self._air = None
            for index in air.link_lookup(ifname=BRIDGE):
                air.link("del", index=index)
            for message in _counting(air):
                air.tc("del", index=message["index"])

    def counters(self) -> WireCounters:
        """What all nodes have sent; acknowledgements are taken to have the usual length."""
        frames = num_bytes = drops = 0
        for message in _counting(self._air):
            statistics = message.get_attr("TCA_STATS2")
            sent = statistics.get_attr("TCA_STATS_BASIC")
            frames += sent["packets"]
            num_bytes += sent["bytes"]
            drops += statistics.get_attr("TCA_STATS_QUEUE")["drops"]
        acks = sum(counter.frames for counter in self._acks)
        total = PairCounter(frames, num_bytes, acks, acks * ACK_FRAME_BYTES, drops)
        return WireCounters({(WireCounters.ANY_NODE, WireCounters.ANY_NODE): total})

    def health(self) -> dict[str, Any]:
        """A bridge is never late."""
        figures = dict.fromkeys(("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "cpu_s"))
        return {"backend": self.name, "alive": True, **figures, "drops": self.counters().total().drops}


def _counting(air: Any) -> list[Any]:
    """Our queueing disciplines, as the kernel describes them."""
    return [message for message in air.get_qdiscs() if message.get_attr("TCA_KIND") == _COUNTING_QDISC]
