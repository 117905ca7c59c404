"""Back end ``unshaped``: a plain bridge, as fast as the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from bwbench.network.backend import AbstractBackend, PairCounter, WireCounters

BRIDGE = "air"


class UnshapedBackend(AbstractBackend):
    """Connects the ports by a kernel bridge.

    Counts what each node sends by the statistics of its port: receivers and acknowledgements are not told apart, and a
    super-packet counts as one frame with the headers of one.
    """

    name: ClassVar[str] = "unshaped"

    def start(self) -> None:
        """Make the bridge and attach the ports."""
        from pyroute2 import IPRoute

        with IPRoute() as air:
            air.link("add", ifname=BRIDGE, kind="bridge")
            bridge = air.link_lookup(ifname=BRIDGE)[0]
            air.link("set", index=bridge, state="up")
            for port in self.ports:
                air.link("set", index=air.link_lookup(ifname=port.interface)[0], master=bridge)
        self.applied = {"bridge": BRIDGE}

    def stop(self) -> None:
        """Remove the bridge."""
        from pyroute2 import IPRoute

        with IPRoute() as air:
            for index in air.link_lookup(ifname=BRIDGE):
                air.link("del", index=index)

    def counters(self) -> WireCounters:
        """What the nodes have sent, by ``/proc/net/dev``."""
        received = _received()
        pairs = {}
        for port in self.ports:
            num_bytes, frames, drops = received.get(port.interface, (0, 0, 0))
            pairs[port.node, WireCounters.ANY_NODE] = PairCounter(frames, num_bytes, None, None, drops)
        return WireCounters(pairs)

    def health(self) -> dict[str, Any]:
        """A bridge is never late."""
        figures = dict.fromkeys(("lateness_p50_s", "lateness_p99_s", "lateness_max_s", "cpu_s"))
        return {"backend": self.name, "alive": True, **figures, "drops": self.counters().total().drops}


def _received() -> dict[str, tuple[int, int, int]]:
    """Bytes, frames and drops received by each interface of this namespace."""
    received = {}
    for line in Path("/proc/self/net/dev").read_text().splitlines()[2:]:
        name, _, figures = line.partition(":")
        columns = figures.split()
        received[name.strip()] = (int(columns[0]), int(columns[1]), int(columns[3]))
    return received
