"""What holds at one node: what differs there, its link with everything filled in, its TCP, and the path to another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from bwbench.base.units import LinkDelay, LinkRate, Memory, PositiveDuration
from bwbench.network.link.queue import QueueSize
from bwbench.network.link.variation import Trace, Traces

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class NodeOverride(BaseModel):
    """What is different at one node; None is as everywhere. The keys mean what they mean in ``Link``."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    bandwidth_bps: LinkRate | None = Field(None, alias="bandwidth")
    up_bps: LinkRate | None = Field(None, alias="up")
    down_bps: LinkRate | None = Field(None, alias="down")
    latency_s: LinkDelay | None = Field(None, alias="latency")
    jitter_s: LinkDelay | None = Field(None, alias="jitter")
    loss: Probability | None = None
    queue: QueueSize | None = None
    trace: Traces | None = None


@dataclass(frozen=True)
class NodeLink:
    """What one node's link is asked to be: base link and override put together.

    Attributes:
        up_bps, down_bps: rate of Ethernet frames from the node and to it; the mean where a trace drives it. On a shared
            air both are the PHY rate of the station.
        latency_s: one-way delay between this node and one that is like it; see ``path_between``.
        jitter_s: standard deviation of that delay.
        loss: share of the frames lost between this node and one that is like it.
        up_queue_bytes, down_queue_bytes: drop-tail queue before each direction.
        queue_packets: where the queue counts packets: how many; None where it counts bytes.
        up_trace, down_trace: what drives the rate over time; None where it is constant.
    """

    up_bps: float
    down_bps: float
    latency_s: float
    jitter_s: float
    loss: float
    up_queue_bytes: int
    down_queue_bytes: int
    queue_packets: int | None = None
    up_trace: Trace | None = None
    down_trace: Trace | None = None

    @property
    def slowest_bps(self) -> float:
        """The slower of both directions."""
        return min(self.up_bps, self.down_bps)


@dataclass(frozen=True)
class Path:
    """What happens to a frame between the sender's uplink and the receiver's downlink."""

    latency_s: float
    jitter_s: float
    loss: float


def path_between(src: NodeLink, dst: NodeLink) -> Path:
    """Each end contributes half: the mean latency, half of both variances, and both halves of the loss.

    So a path between two nodes that are alike is what their link says.
    """
    return Path(
        latency_s=(src.latency_s + dst.latency_s) / 2,
        jitter_s=src.jitter_s
        if src.jitter_s == dst.jitter_s
        else math.hypot(src.jitter_s, dst.jitter_s) / math.sqrt(2),
        loss=src.loss if src.loss == dst.loss else 1 - math.sqrt((1 - src.loss) * (1 - dst.loss)),
    )


class TcpSettings(BaseModel):
    """What the kernel's TCP is told in every node; None leaves the kernel's own value. All of it is recorded.

    Attributes:
        congestion_control: ``reno``, ``cubic``, ``bbr``, …; must be among the host's
            net.ipv4.tcp_allowed_congestion_control. None takes cubic where it is allowed, else reno.
        slow_start_after_idle: whether a connection that was silent begins slowly again (the kernel's default is yes).
        receive_buffer_bytes, send_buffer_bytes: the largest buffer of a connection.
        rto_max_s: longest wait between two retransmissions (net.ipv4.tcp_rto_max_ms, from Linux 6.15 on).
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    congestion_control: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,15}$")] | None = None
    slow_start_after_idle: bool | None = None
    receive_buffer_bytes: Memory | None = Field(None, alias="receive_buffer")
    send_buffer_bytes: Memory | None = Field(None, alias="send_buffer")
    rto_max_s: PositiveDuration | None = Field(None, alias="rto_max")

    def sysctls(self) -> dict[str, str]:
        """Names below net.ipv4 and the text to write; without the congestion control and its default."""
        found: dict[str, str] = {}
        if self.slow_start_after_idle is not None:
            found["tcp_slow_start_after_idle"] = str(int(self.slow_start_after_idle))
        for name, value in (("tcp_rmem", self.receive_buffer_bytes), ("tcp_wmem", self.send_buffer_bytes)):
            if value is not None:
                found[name] = f"4096 {min(131_072, int(value))} {int(value)}"
        if self.rto_max_s is not None:
            found["tcp_rto_max_ms"] = str(round(self.rto_max_s * 1e3))
        return found
