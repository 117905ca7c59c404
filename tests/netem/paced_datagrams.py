"""Numbered datagrams at a fixed pace, with the time at which each was sent.

``receive SECONDS`` ends after so much silence and prints, in the order in which they came: number, when it was sent,
when the kernel received it (seconds of one clock, which all nodes of a machine share).
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

PORT = 9999
HEAD = struct.Struct("=Id")
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
TIMESPEC = struct.Struct("@qq")


def send(addresses: list[str], number: int, gap_s: float, payload_bytes: int, catches_up: bool) -> None:
    """Every ``gap_s`` one datagram to each of ``addresses``; a delay is made up for at once, or not at all."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        filling = bytes(payload_bytes - HEAD.size)
        begin_s = time.monotonic()
        for index in range(number):
            left_s = begin_s + index * gap_s - time.monotonic()
            time.sleep(max(0.0, left_s))
            if not catches_up:
                begin_s -= min(0.0, left_s)
            for address in addresses:
                out.sendto(HEAD.pack(index, time.time()) + filling, (address, PORT))


def receive(silence_s: float) -> None:
    """Print all that comes; see above."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        try:
            into.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        except OSError:
            into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        into.bind(("", PORT))
        print("ready", flush=True)
        into.settimeout(30)
        try:
            while True:
                data, ancillary, _, _ = into.recvmsg(65536, 128)
                seconds, nanoseconds = TIMESPEC.unpack_from(ancillary[0][2])
                found.append((*HEAD.unpack_from(data), seconds + nanoseconds * 1e-9))
                into.settimeout(silence_s)
        except TimeoutError:
            print(json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2].split(","), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]), sys.argv[6] == "True")
    else:
        receive(float(sys.argv[2]))
