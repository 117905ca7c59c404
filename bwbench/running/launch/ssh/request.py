"""What each host of launcher ``ssh`` has to do so that together they make the link that a cell asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bwbench.network.link import Link
from bwbench.network.link.link import MAX_SEED
from bwbench.network.link.queue import Queue

if TYPE_CHECKING:
    from bwbench.running.launch.ssh.preflight import HostReport

SSH_PORT = 22


@dataclass(frozen=True)
class Request:
    """What a host is to shape.

    Attributes:
        link: this host's part of the link, as ``host_link`` makes it.
        interface: None takes the one that leads to the first of the peers.
        peers: where the other hosts are: addresses or names.
        spared: ports of ssh, which are never shaped.
    """

    link: Mapping[str, Any]
    interface: str | None
    peers: Sequence[str]
    spared: Sequence[int]

    def to_json(self) -> dict[str, Any]:
        """What travels."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Request:
        """What came."""
        return cls(dict(content["link"]), content["interface"], list(content["peers"]), list(content["spared"]))


def host_link(link: Link, rank: int) -> Link:
    """The part of ``link`` that the interface of one host does, in each direction.

    Its rates are the host's own. A path has the latency, jitter and loss of half of either end, the sender's on the way
    out and the receiver's on the way in: latencies, variances and logarithms of what is not lost add up. The queue is
    the node's, of both directions the larger.
    """
    node = link.node(rank)
    queue = Queue(node.queue_packets, "packets") if node.queue_packets else None
    return Link(
        up_bps=f"{node.up_bps!r} bit/s",
        down_bps=f"{node.down_bps!r} bit/s",
        latency_s=f"{node.latency_s / 2!r} s",
        jitter_s=f"{node.jitter_s / math.sqrt(2)!r} s",
        jitter_distribution=link.jitter_distribution,
        reorder=link.reorder,
        loss=1 - math.sqrt(1 - node.loss),
        loss_burst=link.loss_burst,
        loss_in_bad=link.loss_in_bad,
        queue=queue or Queue(max(node.up_queue_bytes, node.down_queue_bytes), "B"),
        seed=(link.seed + rank) % MAX_SEED,
    )


def requests(reports: Sequence[HostReport], link: Link) -> list[Request]:
    """What to ask of each host; the ports of all ssh servers are left alone on all of them."""
    named = {report.host.port for report in reports} | {report.facts.get("ssh_port") for report in reports}
    spared = sorted({SSH_PORT, *(port for port in named if port is not None)})
    return [
        Request(
            link=host_link(link, rank).model_dump(mode="json", by_alias=True),
            interface=report.host.interface,
            peers=[other.address for other in reports if other is not report],
            spared=spared,
        )
        for rank, report in enumerate(reports)
    ]
