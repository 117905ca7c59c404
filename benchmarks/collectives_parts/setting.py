"""What is measured on: the link, the limit of a ring, and payloads of a given duration."""

from __future__ import annotations

from bwbench.base.units import BANDWIDTH
from bwbench.network.link import ETHERNET_FRAME_BYTES, TCP_PAYLOAD_BYTES, Link

NODES = 4
LATENCY = "2.5 ms"


def link_of(
    rate_bps: float, queue: str | None = None, congestion_control: str | None = None, latency: str = LATENCY
) -> Link:
    """The link that is measured on; our collectives are told of it, as they are in training. None is the default."""
    tcp = {"congestion_control": congestion_control}
    return Link.model_validate(
        {"bandwidth": BANDWIDTH.format(rate_bps), "latency": latency, "queue": queue, "tcp": tcp}
    )


def limit_s(payload_bytes: int, rate_bps: float, num_nodes: int = NODES) -> float:
    """Seconds of a ring that never idles, without latency: 2(N-1)/N * S/B."""
    goodput_bytes_per_s = rate_bps / 8 * TCP_PAYLOAD_BYTES / ETHERNET_FRAME_BYTES
    return 2 * (num_nodes - 1) / num_nodes * payload_bytes / goodput_bytes_per_s


def payload_of_about(seconds: float, rate_bps: float) -> int:
    """Bytes, a multiple of 4 kB, that take about so long at the limit."""
    return int(seconds / limit_s(1, rate_bps)) // 4096 * 4096
