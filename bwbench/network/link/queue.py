"""How long a queue may grow: in bytes, packets, or multiples of the bandwidth-delay product."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator, WithJsonSchema

from bwbench.base.explain import refused
from bwbench.base.units import MEMORY
from bwbench.network.link.frame_sizes import ETHERNET_FRAME_BYTES

MINIMUM_QUEUE_BYTES = 64_000  # below one BDP of 64 kB a single super-packet of the sender would not fit
LONGEST_MINIMUM_S = 1.0  # … but 64 kB must not become seconds on a slow link
FEWEST_FRAMES = 4  # with less TCP cannot even tell a loss from silence
MOST_BYTES = 1e10
MOST_PACKETS = 10_000_000
MOST_BDP = 1000.0
_COUNTED = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(packets?|bdp)\s*", re.IGNORECASE)
_EXAMPLE = "write it like '64 kB', '100 packets' or '2 bdp' (multiples of the bandwidth-delay product)"


@dataclass(frozen=True)
class Queue:
    """A drop-tail queue before a bottleneck.

    Attributes:
        amount: how much it holds.
        unit: ``B``, ``packets`` (of whatever size) or ``bdp``.
    """

    amount: float
    unit: str

    @classmethod
    def parse(cls, text: object) -> Queue:
        """The queue in ``text``; raises ValueError that shows the right form."""
        if isinstance(text, Queue):
            return text
        match = _COUNTED.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            try:
                num_bytes = MEMORY.parse(text)
            except ValueError as error:
                raise ValueError(
                    f"{error}; {_EXAMPLE}" if "Allowed" in str(error) else f"{text!r}: {_EXAMPLE}"
                ) from None
            if not ETHERNET_FRAME_BYTES <= num_bytes <= MOST_BYTES:
                bounds = f"one frame ({ETHERNET_FRAME_BYTES} B) to 10 GB"
                raise ValueError(f"a queue of {num_bytes:g} B is out of range: {bounds}")
            return cls(num_bytes, "B")
        amount = float(match[1])
        if match[2].lower() == "bdp":
            if not 0 < amount <= MOST_BDP:
                raise ValueError(f"{text!r} is out of range: more than 0 bdp, at most {MOST_BDP:g}")
            return cls(amount, "bdp")
        if not (amount.is_integer() and 1 <= amount <= MOST_PACKETS):
            raise ValueError(f"{text!r} is out of range: a whole number of packets from 1 to {MOST_PACKETS}")
        return cls(amount, "packets")

    def __str__(self) -> str:
        """The form in which it is written, such as ``64 kB``."""
        return MEMORY.format(self.amount) if self.unit == "B" else f"{self.amount:.12g} {self.unit}"

    @property
    def packets(self) -> int | None:
        """How many packets it holds where it counts packets; None where it counts bytes."""
        return int(self.amount) if self.unit == "packets" else None

    def num_bytes(self, rate_bps: float, rtt_s: float) -> int:
        """Bytes of Ethernet frames that it holds before a bottleneck of ``rate_bps``; packets count as full frames."""
        if self.unit == "packets":
            return int(self.amount) * ETHERNET_FRAME_BYTES
        if self.unit == "bdp":
            return max(ETHERNET_FRAME_BYTES, int(self.amount * rate_bps / 8 * rtt_s))
        return int(self.amount)


def default_queue_bytes(rate_bps: float, rtt_s: float) -> int:
    """One bandwidth-delay product, and no less than 64 kB unless that would take more than a second to send."""
    minimum = max(min(MINIMUM_QUEUE_BYTES, rate_bps / 8 * LONGEST_MINIMUM_S), FEWEST_FRAMES * ETHERNET_FRAME_BYTES)
    return int(max(rate_bps / 8 * rtt_s, minimum))


def _validate(value: Any) -> Queue:
    try:
        return Queue.parse(value)
    except ValueError as error:
        raise refused(str(error)) from None


QueueSize = Annotated[
    Queue,
    PlainValidator(_validate),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "examples": ["64 kB", "100 packets", "2 bdp"], "title": "queue"}),
]
