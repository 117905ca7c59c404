"""From what a link asks to what the kernel's netem is told. Pure: nothing here touches a machine.

Every node gets three qdiscs, in the order in which a frame between two nodes meets them:

- ``up``, on its way out of the sender: the rate, with the queue before it;
- ``line``, on its way to the receiver: latency, jitter and loss, without a rate (missing where none of them is asked);
- ``down``, into the receiver: the rate again, with the queue before it, so that three senders to one node and one to
  three agree.

Latency and loss are asked once a path, so one of the three has them. They stand apart from the rate because netem
delays a frame before it serialises it and counts both under one limit: in one qdisc the queue would shrink by what is
in flight.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from bwbench.errors import ConfigError
from bwbench.network.link import ETHERNET_FRAME_BYTES, Link
from bwbench.units import BANDWIDTH, DURATION

MAX_RATE_BYTES_PER_S = 2**32 - 1  # the field in the message has 32 bits; netem's 64-bit one is out of pyroute2's reach
MAX_DELAY_S = 100.0  # another field of 32 bits holds 274 s of 64 ns ticks; nobody waits that long
MAX_LIMIT_PACKETS = 2**32 - 1

# What is in flight on the line is bounded by the rates around it, not by a queue: it must never be what drops.
LINE_LIMIT_PACKETS = 1_000_000

DISTRIBUTION_SCALE = 8192  # one standard deviation in the kernel's table of a distribution (NETEM_DIST_SCALE)
DISTRIBUTION_ENTRIES = 4096  # as many as iproute2's tables have; the kernel takes up to 16384


@dataclass(frozen=True)
class NetemQdisc:
    """One netem qdisc in the kernel's own units. All fields are sent every time: one left out would keep its old value.

    Attributes:
        limit_packets: how many packets it holds, of whatever size; one more is dropped.
        rate_bytes_per_s: serialisation of whole Ethernet frames; 0 is no rate.
        delay_us: mean delay of a packet.
        jitter_us: standard deviation of the delay (normal).
        loss: probability with which a packet is dropped on arrival.
    """

    limit_packets: int
    rate_bytes_per_s: int = 0
    delay_us: int = 0
    jitter_us: int = 0
    loss: float = 0.0

    def to_json(self) -> dict[str, int | float]:
        """The fields by name."""
        return asdict(self)


@dataclass(frozen=True)
class NodeShape:
    """The qdiscs of one node; ``line`` is None where the link asks for no latency, jitter or loss."""

    up: NetemQdisc
    line: NetemQdisc | None
    down: NetemQdisc

    def to_json(self) -> dict[str, Any]:
        """What is set, first in the words of the link, then qdisc by qdisc."""
        line = self.line or NetemQdisc(0)
        return {
            "bandwidth_bps": 8 * self.up.rate_bytes_per_s,
            "latency_s": line.delay_us / 1e6,
            "jitter_s": line.jitter_us / 1e6,
            "loss": line.loss,
            "queue_packets": self.up.limit_packets,
            "qdiscs": {
                "up": self.up.to_json(),
                "line": self.line.to_json() if self.line else None,
                "down": self.down.to_json(),
            },
        }


def shape(link: Link) -> NodeShape:
    """The qdiscs of each node of ``link``, which is shaped and switched.

    Raises ConfigError for what netem cannot express.
    """
    if not link.shaped or link.bandwidth_bps is None or link.medium != "switched":
        raise ValueError(f"netem shapes switched links, not {link.describe()}")
    rate = NetemQdisc(queue_packets(link), _rate_bytes_per_s(link.bandwidth_bps))
    return NodeShape(rate, _line(link), rate)


def queue_packets(link: Link) -> int:
    """The queue of ``link`` as netem counts it: full frames, and one more for the frame on its way out.

    Short frames take a place each as full ones do: where acknowledgements share the queue it holds fewer bytes.
    """
    return min(math.ceil(link.effective_queue_bytes / ETHERNET_FRAME_BYTES) + 1, MAX_LIMIT_PACKETS)


def _rate_bytes_per_s(bandwidth_bps: float) -> int:
    rate = round(bandwidth_bps / 8)
    if not 1 <= rate <= MAX_RATE_BYTES_PER_S:
        raise ConfigError(
            f"link.bandwidth: netem cannot do {BANDWIDTH.format(bandwidth_bps)}; it has 8 bit/s to "
            f"{BANDWIDTH.format(8 * MAX_RATE_BYTES_PER_S)}. Write 'backend: relay' for others"
        )
    return rate


def _line(link: Link) -> NetemQdisc | None:
    for name, value_s in (("latency", link.latency_s), ("jitter", link.jitter_s)):
        if value_s > MAX_DELAY_S:
            raise ConfigError(
                f"link.{name}: netem cannot do {DURATION.format(value_s)}; at most {DURATION.format(MAX_DELAY_S)}"
            )
    delay_us, jitter_us = round(link.latency_s * 1e6), round(link.jitter_s * 1e6)
    if not (delay_us or jitter_us or link.loss):
        return None
    # With a rate netem lets no packet overtake another, however much the delay varies (without one a jitter larger than
    # the gap between packets reorders). This one is so high that it adds less than a microsecond to a frame.
    keeps_order = MAX_RATE_BYTES_PER_S if jitter_us else 0
    return NetemQdisc(LINE_LIMIT_PACKETS, keeps_order, delay_us, jitter_us, link.loss)


@lru_cache(maxsize=1)
def normal_distribution() -> tuple[int, ...]:
    """The normal distribution as netem wants one: quantiles at equal steps, in units of 1/8192 standard deviation.

    Without a table netem draws the delay evenly between mean - jitter and mean + jitter.
    """
    normal = statistics.NormalDist()
    quantiles = ((entry + 0.5) / DISTRIBUTION_ENTRIES for entry in range(DISTRIBUTION_ENTRIES))
    return tuple(round(DISTRIBUTION_SCALE * normal.inv_cdf(quantile)) for quantile in quantiles)
