"""What a queue reads and writes in the frames of a port (``port.py``): whose they are, and that there is congestion."""

from __future__ import annotations

import zlib

from bwbench.network.link.frame_sizes import ETHERNET_HEADER_BYTES
from bwbench.network.relay.port import VNET_BYTES

_IP = VNET_BYTES + ETHERNET_HEADER_BYTES
_IPV4 = b"\x08\x00"
_WITH_PORTS = (6, 17)  # TCP, UDP
_FRAGMENT = 0x3FFF  # more fragments follow, or this is not the first: only one of them would have ports
_CE = 3  # congestion experienced, of the two bits of ECN (RFC 3168)


class FrameHeaders:
    """Reads and marks frames as ``AF_PACKET`` with ``PACKET_VNET_HDR`` gives them.

    Args:
        seed: of the hash that tells flows apart.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def flow(self, frame: bytes) -> int:
        """A hash of addresses, protocol and ports; of frames that are no IPv4 of their Ethernet addresses."""
        if not _is_ipv4(frame):
            return zlib.crc32(frame[VNET_BYTES:_IP], self._seed)
        ends = frame[_IP + 9 : _IP + 10] + frame[_IP + 12 : _IP + 20]
        if frame[_IP + 9] in _WITH_PORTS and not int.from_bytes(frame[_IP + 6 : _IP + 8], "big") & _FRAGMENT:
            at = _IP + (frame[_IP] & 0x0F) * 4
            ends += frame[at : at + 4]
        return zlib.crc32(ends, self._seed)

    def marked(self, frame: bytes) -> bytes | None:
        """See ``managed.Headers``."""
        if not _is_ipv4(frame):
            return None
        service = frame[_IP + 1]
        if not service & _CE:
            return None
        if service & _CE == _CE:
            return frame
        marked = bytearray(frame)
        marked[_IP + 1] = service | _CE
        # RFC 1624: HC' = ~(~HC + ~m + m'), in ones' complement of 16 bits.
        before = int.from_bytes(frame[_IP + 10 : _IP + 12], "big")
        total = (~before & 0xFFFF) + (~int.from_bytes(frame[_IP : _IP + 2], "big") & 0xFFFF)
        total += int.from_bytes(marked[_IP : _IP + 2], "big")
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        marked[_IP + 10 : _IP + 12] = (~total & 0xFFFF).to_bytes(2, "big")
        return bytes(marked)


def _is_ipv4(frame: bytes) -> bool:
    return len(frame) >= _IP + 20 and frame[_IP - 2 : _IP] == _IPV4
