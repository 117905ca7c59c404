"""Numbered datagrams at a fixed pace: ``receive SECONDS`` prints the numbers in the order in which they came."""

from __future__ import annotations

import json
import socket
import struct
import sys
import time

PORT = 9999


def send(address: str, number: int, gap_s: float, payload_bytes: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        begin_s = time.monotonic()
        for index in range(number):
            time.sleep(max(0.0, begin_s + index * gap_s - time.monotonic()))
            out.sendto(struct.pack("=I", index) + bytes(payload_bytes - 4), (address, PORT))


def receive(silence_s: float) -> None:
    numbers = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as into:
        into.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        into.bind(("", PORT))
        print("ready", flush=True)
        into.settimeout(30)
        try:
            while True:
                numbers.append(struct.unpack_from("=I", into.recv(65536))[0])
                into.settimeout(silence_s)
        except TimeoutError:
            print(json.dumps(numbers))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
    else:
        receive(float(sys.argv[2]))
