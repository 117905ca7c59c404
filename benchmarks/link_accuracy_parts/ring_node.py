"""One node of a ring all-reduce over plain TCP sockets, with nothing but the standard library.

    python ring_node.py RANK BYTES ROUNDS ADDRESS...     addresses of all nodes, by rank

Each node sends to the next and receives from the one before: 2 (N - 1) steps of BYTES / N each, as an all-reduce does,
without the arithmetic. Prints the seconds of each round from a common start, as a JSON list.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

PORT = 5401
CONNECT_LIMIT_S = 20.0
STEP_LIMIT_S = 120.0


def main() -> None:
    rank, num_bytes, rounds = (int(word) for word in sys.argv[1:4])
    addresses = sys.argv[4:]
    number = len(addresses)
    with socket.create_server((addresses[rank], PORT)) as server:
        server.settimeout(CONNECT_LIMIT_S)
        following = _connect(addresses[(rank + 1) % number])
        previous, _ = server.accept()
    for connection in (following, previous):
        connection.settimeout(STEP_LIMIT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    chunk = bytes(num_bytes // number)
    times_s = []
    for _ in range(rounds):
        _meet(rank, following, previous)
        started_s = time.monotonic()
        for _ in range(2 * (number - 1)):
            sending = threading.Thread(target=following.sendall, args=(chunk,))
            sending.start()
            _receive(previous, len(chunk))
            sending.join()
        times_s.append(time.monotonic() - started_s)
    _meet(rank, following, previous)  # nobody leaves before everybody has received
    print(json.dumps(times_s))


def _connect(address: str) -> socket.socket:
    deadline_s = time.monotonic() + CONNECT_LIMIT_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=1.0)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.05)


def _meet(rank: int, following: socket.socket, previous: socket.socket) -> None:
    """A token goes around twice: after the first time all are there, after the second all know."""
    for _ in range(2):
        if rank == 0:
            following.sendall(b"t")
            _receive(previous, 1)
        else:
            _receive(previous, 1)
            following.sendall(b"t")


def _receive(connection: socket.socket, num_bytes: int) -> None:
    view = memoryview(bytearray(min(num_bytes, 1 << 18)))
    while num_bytes:
        received = connection.recv_into(view[: min(num_bytes, len(view))])
        if not received:
            raise ConnectionError("the node before has gone")
        num_bytes -= received


if __name__ == "__main__":
    main()
