"""What the network is asked to be: one pure description, used by both back ends, by the probe and by prediction."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from bwbench.units import BANDWIDTH, DURATION, Bandwidth, Duration, Memory

ETHERNET_FRAME_BYTES = 1514  # a full frame with its Ethernet header: 1500 B of IP behind 14 B
TCP_PAYLOAD_BYTES = 1448  # of such a frame, with TCP timestamps: 1514 - 14 - 20 - 32
UDP_PAYLOAD_BYTES = 1472  # of such a frame: 1514 - 14 - 20 - 8
MINIMUM_QUEUE_BYTES = 64_000  # below one BDP of 64 kB a single super-packet of the sender would not fit

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]


class Link(BaseModel):
    """The link of every node, up and down alike.

    Attributes:
        shaped: False asks for no shaping at all (YAML: ``link: unshaped``).
        bandwidth_bps: rate of each direction of each node, in bit/s of Ethernet frames (``medium: switched``), or
            the capacity of the one half-duplex air (``medium: shared``).
        latency_s: one-way delay between two nodes.
        jitter_s: standard deviation of the one-way delay (normal); packets keep their order.
        loss: probability with which a packet is lost, each by itself.
        queue_bytes: drop-tail queue before each bottleneck; None takes the larger of one bandwidth-delay product
            and 64 kB.
        medium: ``switched`` gives each node a full-duplex link of its own; ``shared`` is one half-duplex air, which a
            frame from station to station crosses twice (up to the access point, down again).
        backend: ``netem`` (kernel), ``relay`` (user space), or ``auto``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    shaped: bool = True
    bandwidth_bps: Bandwidth | None = Field(None, alias="bandwidth", validate_default=False)
    latency_s: Duration = Field(0.0, alias="latency")
    jitter_s: Duration = Field(0.0, alias="jitter")
    loss: Probability = 0.0
    queue_bytes: Memory | None = Field(None, alias="queue")
    medium: Literal["switched", "shared"] = "switched"
    backend: Literal["auto", "netem", "relay"] = "auto"

    @model_validator(mode="before")
    @classmethod
    def _expand_name(cls, value: Any) -> Any:
        return {"shaped": False} if value == "unshaped" else value

    @model_validator(mode="after")
    def _consistent(self) -> Link:
        if self.shaped and self.bandwidth_bps is None:
            raise PydanticCustomError("link", "a shaped link needs a bandwidth: '10 Mbit/s' (or write link: unshaped)")
        if not self.shaped and self != Link.model_construct(shaped=False, backend=self.backend):
            raise PydanticCustomError("link", "an unshaped link takes no bandwidth, latency, jitter, loss or queue")
        return self

    @property
    def rtt_s(self) -> float:
        """Round-trip time that the one-way latency makes, without serialisation."""
        return float(2 * self.latency_s)

    @property
    def effective_queue_bytes(self) -> int:
        """The queue in bytes once the default is filled in."""
        if self.queue_bytes is not None:
            return int(self.queue_bytes)
        bdp = (self.bandwidth_bps or 0.0) / 8 * self.rtt_s
        return int(max(bdp, MINIMUM_QUEUE_BYTES))

    def describe(self) -> str:
        """One line for tables: ``10 Mbit/s, 2.5 ms one way (RTT 5 ms), switched``."""
        if not self.shaped or self.bandwidth_bps is None:
            return "unshaped"
        text = f"{BANDWIDTH.format(self.bandwidth_bps)}, {DURATION.format(self.latency_s)} one way"
        text += f" (RTT {DURATION.format(self.rtt_s)}), {self.medium}"
        if self.jitter_s:
            text += f", jitter {DURATION.format(self.jitter_s)}"
        if self.loss:
            text += f", loss {self.loss:.3g}"
        return text


UNSHAPED = Link(shaped=False)
