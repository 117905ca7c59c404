"""What a path does under load: some TCP connections send as fast as they can, and datagrams go there and back.

python -m tests.netem.loaded_link serve PORT
python -m tests.netem.loaded_link load ADDRESS PORT SECONDS CONNECTIONS CONTROL

The second one prints JSON: goodput in bit/s over the last two thirds, and round trips in s as the datagrams had them.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import threading
import time

_CHUNK = bytes(64 * 1024)
_EVERY_S = 0.02


def serve(port: int) -> None:
    """Swallow what comes over TCP and tell how much, echo what comes over UDP; for ever."""
    received = [0]
    listener = socket.create_server(("", port), backlog=64)
    echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    echo.bind(("", port))

    def swallow(connection: socket.socket) -> None:
        while data := connection.recv(1 << 20):
            received[0] += len(data)

    def accept() -> None:
        while True:
            threading.Thread(target=swallow, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while True:
        data, sender = echo.recvfrom(2048)
        echo.sendto(data[:8] + received[0].to_bytes(8, "big"), sender)


def load(address: str, port: int, seconds_s: float, connections: int, control: str) -> dict[str, object]:
    """Send, and measure meanwhile."""
    over = threading.Event()

    def send() -> None:
        with socket.socket() as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
            stream.connect((address, port))
            stream.settimeout(1.0)
            while not over.is_set():
                try:
                    stream.send(_CHUNK)
                except TimeoutError:
                    continue

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(0.5)
        probe.connect((address, port))
        idle_s = [_round_trip(probe)[0] for _ in range(10)]
        threads = [threading.Thread(target=send, daemon=True) for _ in range(connections)]
        for thread in threads:
            thread.start()
        began_s = time.monotonic()
        seen: list[tuple[float, float, int]] = []
        lost = 0
        while (now_s := time.monotonic()) < began_s + seconds_s:
            try:
                rtt_s, received = _round_trip(probe)
                seen.append((now_s + rtt_s, rtt_s, received))
            except TimeoutError:
                lost += 1
            time.sleep(_EVERY_S)
        over.set()
    steady = [row for row in seen if row[0] > began_s + seconds_s / 3]
    (first_s, _, first), (last_s, _, last) = steady[0], steady[-1]
    rtts_s = sorted(rtt_s for _, rtt_s, _ in steady)
    return {
        "goodput_bps": (last - first) * 8 / (last_s - first_s),
        "idle_s": statistics.median(idle_s),
        "mean_s": statistics.fmean(rtts_s),
        "median_s": statistics.median(rtts_s),
        "p90_s": rtts_s[int(0.9 * len(rtts_s))],
        "lost": lost,
    }


def _round_trip(probe: socket.socket) -> tuple[float, int]:
    """Round trip, and how much the other end has received over TCP."""
    began_s = time.monotonic()
    stamp = time.monotonic_ns().to_bytes(8, "big")
    probe.send(stamp + bytes(24))
    while True:
        answer = probe.recv(2048)
        if answer[:8] == stamp:  # and not to an earlier one that came too late
            return time.monotonic() - began_s, int.from_bytes(answer[8:16], "big")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]))
    else:
        _, _, where, port, seconds, number, kind = sys.argv
        print(json.dumps(load(where, int(port), float(seconds), int(number), kind)))
