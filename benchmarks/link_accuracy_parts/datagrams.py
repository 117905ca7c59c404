"""Numbered datagrams with the time at which they were sent, and what the kernel says of when each of them came.

iperf3 tells a smoothed figure of jitter and no delays, and nothing of which datagrams were lost; so this stands in for
it there. Runs by itself in a node, imports next to nothing:

    python datagrams.py receive ADDRESS PORT SILENCE_S       prints a JSON object once nothing has come for so long
    python datagrams.py send ADDRESS PORT COUNT SPACING_S    returns once all are sent
"""

from __future__ import annotations

import array
import json
import select
import socket
import struct
import sys
import time

_STAMP = struct.Struct("!QQ")  # number, CLOCK_REALTIME in nanoseconds at which it was sent
_PAYLOAD_BYTES = 64
_TIMESPEC = struct.Struct("@qq")
_SO_TIMESTAMPNS = 35
_SO_RXQ_OVFL = 40  # the kernel tells how many it had to leave out for want of room in the socket
_RECEIVE_BUFFER_BYTES = 4 << 20
_FIRST_LIMIT_S = 20.0  # for the first datagram to come


def receive(address: str, port: int, silence_s: float) -> None:
    """Take in datagrams until none comes for ``silence_s``, and print in which order and how late they came."""
    numbers, delays_ns, overflows = array.array("Q"), array.array("q"), 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as incoming:
        incoming.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER_BYTES)
        incoming.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        incoming.setsockopt(socket.SOL_SOCKET, _SO_RXQ_OVFL, 1)
        incoming.bind((address, port))
        print("listening", flush=True)
        while select.select([incoming], [], [], silence_s if numbers else _FIRST_LIMIT_S)[0]:
            data, ancillary, _, _ = incoming.recvmsg(2048, 256)
            number, sent_ns = _STAMP.unpack_from(data)
            came_ns = time.time_ns()
            for _, kind, value in ancillary:
                if kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                    came_ns = seconds * 1_000_000_000 + nanoseconds
                elif kind == _SO_RXQ_OVFL:
                    (overflows,) = struct.unpack("=I", value[:4])
            numbers.append(number)
            delays_ns.append(came_ns - sent_ns)
    print(json.dumps({"numbers": numbers.tolist(), "delays_ns": delays_ns.tolist(), "overflows": overflows}))


def send(address: str, port: int, count: int, spacing_s: float) -> None:
    """Send ``count`` datagrams; one that is late moves those after it, so that none come closer than ``spacing_s``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outgoing:
        outgoing.connect((address, port))
        due_s = time.monotonic()
        for number in range(count):
            left_s = due_s - time.monotonic()
            if left_s > 0:
                time.sleep(left_s)
            due_s = max(due_s, time.monotonic()) + spacing_s
            outgoing.send(_STAMP.pack(number, time.time_ns()).ljust(_PAYLOAD_BYTES, b"\0"))


if __name__ == "__main__":
    what, to, at, *rest = sys.argv[1:]
    if what == "receive":
        receive(to, int(at), float(rest[0]))
    else:
        send(to, int(at), int(rest[0]), float(rest[1]))
