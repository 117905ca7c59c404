"""Datagrams of several flows, each at its own pace whatever becomes of them; when each was sent and when it came.

python -m tests.netem.flooding_datagrams receive PORT SECONDS
python -m tests.netem.flooding_datagrams send ADDRESS PORT SECONDS PAYLOAD_BYTES PPS [PPS ...]

Flow k goes to port PORT + k. Both print JSON: rows [flow, number, time in s of CLOCK_REALTIME].
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time

_HEAD = struct.Struct("!IId")
_SO_TIMESTAMPNS = 35
_FLOWS = 8


def receive(port: int, seconds_s: float) -> list[tuple[int, int, float]]:
    """What comes, with the kernel's time of arrival."""
    sockets = []
    for flow in range(_FLOWS):
        one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        one.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        one.bind(("", port + flow))
        sockets.append(one)
    rows, until_s = [], time.monotonic() + seconds_s
    while (left_s := until_s - time.monotonic()) > 0:
        for one in select.select(sockets, [], [], left_s)[0]:
            data, ancillary, _, _ = one.recvmsg(2048, 64)
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            flow, number, _ = _HEAD.unpack_from(data)
            rows.append((flow, number, seconds + nanoseconds * 1e-9))
    return rows


def send(
    address: str, port: int, seconds_s: float, payload_bytes: int, paces: list[float]
) -> list[tuple[int, int, float]]:
    """Each flow at so many datagrams a second."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        rows, begin_s = [], time.monotonic()
        next_s = [begin_s + 0.5 / pps for pps in paces]
        numbers = [0] * len(paces)
        while (flow := min(range(len(paces)), key=next_s.__getitem__)) is not None:
            if next_s[flow] > begin_s + seconds_s:
                return rows
            if (wait_s := next_s[flow] - time.monotonic()) > 0:
                time.sleep(wait_s)
            now_s = time.time()
            head = _HEAD.pack(flow, numbers[flow], now_s)
            sender.sendto(head + bytes(payload_bytes - len(head)), (address, port + flow))
            rows.append((flow, numbers[flow], now_s))
            numbers[flow] += 1
            next_s[flow] += 1 / paces[flow]
        return rows


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        print(json.dumps(receive(int(sys.argv[2]), float(sys.argv[3]))))
    else:
        _, _, where, number, duration, size, *given = sys.argv
        print(json.dumps(send(where, int(number), float(duration), int(size), [float(pace) for pace in given])))
