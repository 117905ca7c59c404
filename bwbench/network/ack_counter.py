"""Counts a node's bare acknowledgements in the kernel: no packet is copied or looked at here.

A packet socket's statistics count what passes its filter. The filter passes TCP without payload; its receive buffer is
as small as the kernel allows, so that after the first few packets counting is all that happens.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from types import TracebackType

ACK_FRAME_BYTES = 66  # Ethernet 14, IPv4 20, TCP 20 and its timestamps 12; reports of lost segments (SACK) add 12 to 36

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26

# Classic BPF: (code, jump if true, jump if false, operand). Jumps to the last line refuse the packet.
_TCP_WITHOUT_PAYLOAD = (
    (0x28, 0, 0, 12),  # load half [12]: EtherType
    (0x15, 0, 12, 0x0800),  # IPv4, else refuse
    (0x30, 0, 0, 23),  # load byte [23]: protocol
    (0x15, 0, 10, 6),  # TCP, else refuse
    (0x28, 0, 0, 20),  # load half [20]: flags and fragment offset
    (0x45, 8, 0, 0x1FFF),  # a later fragment has no TCP header: refuse
    (0xB1, 0, 0, 14),  # X = length of the IP header
    (0x50, 0, 0, 26),  # load byte [X + 26]: length of the TCP header, in the upper half
    (0x54, 0, 0, 0xF0),
    (0x74, 0, 0, 2),  # ... in bytes
    (0x0C, 0, 0, 0),  # + X
    (0x07, 0, 0, 0),  # X = length of both headers
    (0x28, 0, 0, 16),  # load half [16]: length of the IP packet; equal to X means no payload
    (0x1D, 1, 0, 0),  # equal: jump over the refusal
    (0x06, 0, 0, 0),  # refuse
    (0x06, 0, 0, 1),  # pass; one byte is enough to be counted
)


class AckCounter:
    """The TCP frames without payload that came in through ``interface`` since this was made. Raises OSError."""

    def __init__(self, interface: str) -> None:
        self._frames = 0
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)  # protocol 0: hears nothing until bound
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
            self._socket.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
            program = b"".join(struct.pack("=HBBI", *line) for line in _TCP_WITHOUT_PAYLOAD)
            buffer = ctypes.create_string_buffer(program, len(program))
            header = struct.pack("@HP", len(_TCP_WITHOUT_PAYLOAD), ctypes.addressof(buffer))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, header)
            # All protocols: a socket for IPv4 alone would come after the bridge, which takes the frame away.
            self._socket.bind((interface, _ETH_P_ALL))
        except BaseException:
            self._socket.close()
            raise

    @property
    def frames(self) -> int:
        """Frames counted so far."""
        # The kernel starts again from zero at each reading; "packets" includes those for which the buffer was full.
        packets, _ = struct.unpack("@II", self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
        self._frames += packets
        return self._frames

    def close(self) -> None:
        """Stop counting. Safe to call twice."""
        self._socket.close()

    def __enter__(self) -> AckCounter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
