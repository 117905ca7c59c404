"""Writes every frame of an interface into a file that tcpdump and Wireshark read, until it is told to end.

Started in a node as ``python -m bwbench.network.probe.capture INTERFACE`` with the file as descriptor 3 and a pipe as
descriptor 4, into which goes a line once nothing is missed any more, and at the end how many frames were written and
how many the kernel had no room for. Frames are as the node's kernel sees them: checksums that a card would fill in are
not there yet, and on fast links a frame may be a super-packet of many segments.

The format is pcap with times in nanoseconds: https://datatracker.ietf.org/doc/draft-ietf-opsawg-pcap/
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys

FILE_FD, CHANNEL_FD = 3, 4
MAGIC_NANOSECONDS = 0xA1B23C4D
MOST_BYTES = 262_144  # of a frame; the longest super-packet has 64 kB
_ETHERNET = 1
_HEADER = struct.Struct("=IHHiIII")  # magic, version (2), zone, accuracy, longest frame, kind of link
_FRAME = struct.Struct("=IIII")  # seconds, nanoseconds, bytes that follow, bytes that there were
_TIMESPEC = struct.Struct("@qq")
_ETH_P_ALL, _SOL_PACKET, _PACKET_STATISTICS, _SO_TIMESTAMPNS = 0x0003, 263, 6, 35
_SO_RCVBUFFORCE, _BUFFER_BYTES = 33, 32 << 20
_LOOK_S = 0.2


def main() -> None:
    """Capture until SIGTERM."""
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    written = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as frames, open(FILE_FD, "wb", buffering=1 << 18) as file:
        try:
            frames.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        except PermissionError:  # in a user namespace
            frames.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        frames.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        frames.settimeout(_LOOK_S)
        file.write(_HEADER.pack(MAGIC_NANOSECONDS, 2, 4, 0, 0, MOST_BYTES, _ETHERNET))
        file.flush()
        frames.bind((sys.argv[1], _ETH_P_ALL))
        os.write(CHANNEL_FD, b"ready\n")
        while True:
            try:
                data, ancillary, _, _ = frames.recvmsg(MOST_BYTES, 256)
            except TimeoutError:
                if ended:  # and nothing is left to read
                    break
                file.flush()
                continue
            file.write(_FRAME.pack(*divmod(_time_ns(ancillary), 10**9), len(data), len(data)) + data)
            written += 1
        _, missed = struct.unpack("=II", frames.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8))
    os.write(CHANNEL_FD, b"%d %d\n" % (written, missed))


def _time_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(data[: _TIMESPEC.size])
            return int(seconds * 10**9 + nanoseconds)
    return 0


if __name__ == "__main__":
    main()
