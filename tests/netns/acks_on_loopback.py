"""Sends TCP and UDP over this namespace's loopback; prints how many bare acknowledgements our counter and we count."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading

from bwbench.network.netem.kernel_backends import AckCounter

ETH_P_ALL = 3
IGNORE_OUTGOING = (263, 23, 1)


def is_bare(frame: bytes) -> bool:
    """Whether an Ethernet frame is IPv4 TCP without payload: read anew, not by the filter's rules."""
    ethertype = struct.unpack_from("!H", frame, 12)[0]
    if ethertype != 0x0800 or frame[23] != socket.IPPROTO_TCP:
        return False
    total_length = struct.unpack_from("!H", frame, 16)[0]
    return bool(total_length == 4 * (frame[14] & 0xF) + 4 * (frame[14 + 4 * (frame[14] & 0xF) + 12] >> 4))


def talk() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = threading.Thread(target=drain, args=(server,))
        receiver.start()
        with socket.create_connection(server.getsockname()) as connection:
            for size in (1, 1000, 100_000, 300_000):
                connection.sendall(bytes(size))
        receiver.join()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        for size in (0, 1, 12, 1000):
            udp.sendto(bytes(size), ("127.0.0.1", 9))


def drain(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        while connection.recv(1 << 16):
            pass


def main() -> None:
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    with contextlib.closing(AckCounter("lo")) as counter, raw as capture:
        capture.setsockopt(*IGNORE_OUTGOING)
        capture.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        capture.bind(("lo", ETH_P_ALL))
        talk()
        first = counter.frames  # reading does not disturb what is counted
        talk()
        capture.settimeout(0.3)
        frames = []
        try:
            while True:
                frames.append(capture.recv(128))
        except TimeoutError:
            pass
        counts = {"ours": counter.frames, "first": first, "seen": sum(map(is_bare, frames)), "frames": len(frames)}
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
