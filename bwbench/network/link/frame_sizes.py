"""How large frames are: every figure once, in bytes of Ethernet frames (14 B + IP, no preamble, no checksum)."""

from __future__ import annotations

from dataclasses import dataclass

ETHERNET_HEADER_BYTES = 14
ACK_FRAME_BYTES = 66  # Ethernet 14, IPv4 20, TCP 20 and its timestamps 12; reports of lost segments (SACK) add 12 to 36
SMALLEST_FRAME_BYTES = 42  # Ethernet 14, IPv4 20, UDP 8
UDP_HEADERS_BYTES = SMALLEST_FRAME_BYTES  # so many of a frame are no payload
DEFAULT_MTU = 1500


@dataclass(frozen=True)
class FullFrame:
    """A full frame on an interface that takes IP packets of at most ``mtu`` bytes."""

    mtu: int = DEFAULT_MTU

    @property
    def num_bytes(self) -> int:
        """All of it, with its Ethernet header."""
        return ETHERNET_HEADER_BYTES + self.mtu

    @property
    def tcp_payload_bytes(self) -> int:
        """What TCP puts into it, with timestamps."""
        return self.num_bytes - ACK_FRAME_BYTES

    @property
    def udp_payload_bytes(self) -> int:
        """What UDP puts into it."""
        return self.num_bytes - UDP_HEADERS_BYTES

    @property
    def wire_per_payload(self) -> float:
        """Bytes of full frames to a byte of TCP's payload."""
        return self.num_bytes / self.tcp_payload_bytes


ETHERNET_FRAME_BYTES = FullFrame().num_bytes  # 1514: of the usual MTU, as the next two
TCP_PAYLOAD_BYTES = FullFrame().tcp_payload_bytes  # 1448
UDP_PAYLOAD_BYTES = FullFrame().udp_payload_bytes  # 1472
