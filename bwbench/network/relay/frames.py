"""What a frame costs on the wire, and where it goes: read from its bytes.

A frame here is what an ``AF_PACKET`` socket with ``PACKET_VNET_HDR`` gives: 10 bytes of ``struct virtio_net_hdr``
(whether it is a super-packet, and of which segment size), then the Ethernet frame.
"""

from __future__ import annotations

VNET_BYTES = 10
ETHERNET_BYTES = 14
MAC_BYTES = 6
_IP = VNET_BYTES + ETHERNET_BYTES  # where the IP header begins
_TCP = 6

DESTINATION = slice(VNET_BYTES, VNET_BYTES + MAC_BYTES)  # the Ethernet address that the frame is for
GSO_TYPE = 1  # the byte of a frame that is not 0 in a super-packet
SMALLEST_DATA_FRAME = _IP + 60 + 60 + 1  # no frame of this length or more, as counted here, is TCP without payload


def mac_bytes(mac: str) -> bytes:
    """An address such as ``02:00:00:4d:00:01`` as the 6 bytes that stand in a frame."""
    return bytes.fromhex(mac.replace(":", ""))


def charge(frame: bytes) -> tuple[int, int, bool]:
    """What ``frame`` is charged, as (Ethernet frames, bytes, whether it is TCP without payload).

    Bytes are those of 14 B + IP, without preamble and checksum; a super-packet counts the headers of every segment.
    """
    num_bytes = len(frame) - VNET_BYTES
    if frame[GSO_TYPE]:
        header_bytes = _header_bytes(frame)
        segment_bytes = int.from_bytes(frame[4:6], "little")  # gso_size: payload of a segment
        payload_bytes = num_bytes - header_bytes
        if segment_bytes and payload_bytes > 0:
            segments = -(-payload_bytes // segment_bytes)
            return segments, num_bytes + (segments - 1) * header_bytes, False
    return 1, num_bytes, len(frame) < SMALLEST_DATA_FRAME and _is_ack(frame)


def _header_bytes(frame: bytes) -> int:
    """Length of the Ethernet, IP and TCP or UDP headers together."""
    ip_bytes = (frame[_IP] & 0x0F) * 4
    if frame[_IP + 9] == _TCP:
        return ETHERNET_BYTES + ip_bytes + (frame[_IP + ip_bytes + 12] >> 4) * 4
    return ETHERNET_BYTES + ip_bytes + 8


def _is_ack(frame: bytes) -> bool:
    """Whether this is IPv4 TCP without payload."""
    if len(frame) < _IP + 40 or frame[_IP + 9] != _TCP or frame[_IP - 2] != 8 or frame[_IP - 1] != 0:
        return False
    return frame[_IP + 2] << 8 | frame[_IP + 3] == _header_bytes(frame) - ETHERNET_BYTES
