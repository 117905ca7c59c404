"""How large frames are: every figure once, in bytes of Ethernet frames (14 B + IP, no preamble, no checksum)."""

from __future__ import annotations

ETHERNET_HEADER_BYTES = 14
ETHERNET_FRAME_BYTES = 1514  # a full frame with its Ethernet header: 1500 B of IP behind 14 B
TCP_PAYLOAD_BYTES = 1448  # of a full frame, with TCP timestamps: 1514 - 14 - 20 - 32
UDP_PAYLOAD_BYTES = 1472  # of a full frame: 1514 - 14 - 20 - 8
ACK_FRAME_BYTES = 66  # Ethernet 14, IPv4 20, TCP 20 and its timestamps 12; reports of lost segments (SACK) add 12 to 36
SMALLEST_FRAME_BYTES = 42  # Ethernet 14, IPv4 20, UDP 8
