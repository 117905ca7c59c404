"""Whether a link in slow motion is the link that was asked: iperf3, ping and TCP transfers under several dilations.

A row a link and a dilation K, each through ``bwbench link run --dilation K``: round trip (20 pings), UDP rate and TCP
goodput (cubic; 4 s and 12 s of emulated time), the time of 4 MB over a new connection (of the payload alone, until the
receiver has all of it), and of small questions and answers. All are given in emulated time, beside the same link with
K = 1. What differs is what does not scale: the machine's own delays, and those of TCP's clocks that the kernel keeps.

Usage: python benchmarks/dilation_links.py [--json FILE] [--quick] [--rate MBPS]… [--latency MS]… [--dilation K]…

A FILE that is there is added to: rows of the links and dilations that are measured now are replaced, so that a long
table can be made in parts. The whole takes about 25 minutes, most of them idle: a transfer at K = 8 takes eight times
as long.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bwbench.base.start_module import module_command
from bwbench.network.link import UDP_PAYLOAD_BYTES

RATES_MBPS, LATENCIES_MS = (10.0, 100.0), (2.5, 30.0)
DILATIONS = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0)
TRANSFER_BYTES = 4_000_000
UDP_S, TCP_S = 4.0, 12.0  # of emulated time: iperf3 takes whole seconds of the machine's, a quarter of these at least
OVERLOAD = 1.2
PINGS, QUESTIONS = 20, 20
QUESTION_BYTES, ANSWER_BYTES = 100, 20_000
PORT, IPERF_PORT = 5301, 5201
START_LIMIT_S = 20.0
SLACK_S = 60.0
FIGURES = ("ping_s", "udp_bps", "tcp_bps", "transfer_s", "question_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="100 Mbit/s and 2.5 ms, K = 1, 0.5 and 2")
    parser.add_argument("--rate", type=float, action="append", help="in Mbit/s")
    parser.add_argument("--latency", type=float, action="append", help="in ms")
    parser.add_argument("--dilation", type=float, action="append")
    parser.add_argument("--transfers", type=int, default=3, help="of 4 MB")
    parser.add_argument("--in-node", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.in_node:
        in_node(*options.in_node)
        return
    rates, latencies, dilations = RATES_MBPS, LATENCIES_MS, DILATIONS
    if options.quick:
        rates, latencies, dilations = (100.0,), (2.5,), (1.0, 0.5, 2.0)
    rows = _rows_of(options.json)
    for rate in options.rate or rates:
        for latency in options.latency or latencies:
            for dilation in options.dilation or dilations:
                row = measure(rate, latency, dilation, options.transfers)
                rows = [one for one in rows if _key(one) != _key(row)] + [row]
                print(text(row, rows), flush=True)
                if options.json:
                    options.json.parent.mkdir(parents=True, exist_ok=True)
                    rows.sort(key=_key)
                    options.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


def _rows_of(file: Path | None) -> list[dict[str, Any]]:
    if file is None or not file.exists():
        return []
    found: list[dict[str, Any]] = json.loads(file.read_text())["rows"]
    return found


def _key(row: dict[str, Any]) -> tuple[float, ...]:
    return row["rate_mbps"], row["latency_ms"], row["dilation"]


def measure(rate_mbps: float, latency_ms: float, dilation: float, transfers: int) -> dict[str, Any]:
    """One link in one slow motion, as emulated time has it; ends the program where a tool fails."""
    here = [sys.executable, __file__, "--in-node", "{rank}", "{address:0}"]
    command = [
        *module_command("bwbench.cli.main"), "link", "run", "--nodes", "2", "--no-prefix", "--quiet",
        "--bandwidth", f"{rate_mbps:g} Mbit/s", "--latency", f"{latency_ms:g} ms", "--dilation", f"{dilation:g}",
        "--backend", "relay", "--congestion-control", "cubic",
        "--", *here, f"{rate_mbps * 1e6 / dilation:g}", f"{dilation:g}", str(transfers),
    ]  # fmt: skip
    transfer_s = 2 * TRANSFER_BYTES * 8 / (rate_mbps * 1e6) + 2
    limit_s = dilation * (UDP_S + TCP_S + transfers * transfer_s + QUESTIONS * 0.5) + SLACK_S
    ended = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stdout}{ended.stderr}")
    found: dict[str, Any] = json.loads(ended.stdout)
    scaled = {
        "ping_s": found["ping_s"] / dilation,
        "udp_bps": found["udp_bps"] * dilation,
        "tcp_bps": found["tcp_bps"] * dilation,
        "transfers_s": [taken_s / dilation for taken_s in found["transfers_s"]],
        "transfer_s": statistics.median(found["transfers_s"]) / dilation,
        "question_s": found["question_s"] / dilation,
    }
    return {"rate_mbps": rate_mbps, "latency_ms": latency_ms, "dilation": dilation, **scaled, "machine": found}


def text(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """A line for people, with the differences to the same link without slow motion where that was measured."""
    plain = next((one for one in rows if _key(one) == (*_key(row)[:2], 1.0)), row)
    changes = {name: row[name] / plain[name] - 1 for name in FIGURES}
    return (
        f"{row['rate_mbps']:4g} Mbit/s {row['latency_ms']:4g} ms  K {row['dilation']:<5g}"
        f" ping {row['ping_s'] * 1e3:7.2f} ms ({changes['ping_s']:+.1%})"
        f"  UDP {row['udp_bps'] / 1e6:6.2f} ({changes['udp_bps']:+.1%})"
        f"  TCP {row['tcp_bps'] / 1e6:6.2f} Mbit/s ({changes['tcp_bps']:+.1%})"
        f"  4 MB {row['transfer_s']:.3f} s ({changes['transfer_s']:+.1%})"
        f"  question {row['question_s'] * 1e3:.2f} ms ({changes['question_s']:+.1%})"
    )


def in_node(rank: str, address: str, rate_bps: str, dilation: str, transfers: str) -> None:
    """What runs in the nodes, in the machine's time: node 0 answers, node 1 asks and prints what it found."""
    if int(rank) == 0:
        _answer(address, int(transfers))
        return
    factor = float(dilation)
    control = _connect(address)
    _line(control)  # iperf3 listens
    pings = _told(["ping", "-q", "-c", str(PINGS), "-i", "0.2", address])
    found: dict[str, Any] = {"ping_s": float(re.findall(r"= [\d.]+/([\d.]+)/", pings)[0]) / 1e3}
    client = ["iperf3", "-c", address, "-p", str(IPERF_PORT), "-J", "-t"]
    udp = ["-u", "-b", f"{OVERLOAD * float(rate_bps):.0f}", "-l", str(UDP_PAYLOAD_BYTES), "--get-server-output"]
    told = json.loads(_told([*client, f"{UDP_S * factor:g}", *udp]))
    found["udp_bps"] = _steady_bps(told["server_output_text"])
    time.sleep(0.5 * factor)  # what was too much leaves the queues
    found["tcp_bps"] = json.loads(_told([*client, f"{TCP_S * factor:g}"]))["end"]["sum_received"]["bits_per_second"]
    found["transfers_s"] = [_transfer(address) for _ in range(int(transfers))]
    found["question_s"] = statistics.median(_questions(address))
    control.close()
    print(json.dumps(found))


def _steady_bps(text: str) -> float:
    """Payload in bit/s by the receiver's whole seconds, without the first where there are more: it begins late."""
    seconds = re.findall(r"([\d.]+)-([\d.]+) +sec .* ([\d.]+) Kbits/sec", text.split("- - -")[0])
    rates = [float(rate) * 1e3 for begin, end, rate in seconds if float(end) - float(begin) > 0.5]
    return statistics.fmean(rates[1:] or rates)


def _answer(address: str, transfers: int) -> None:
    with socket.create_server((address, PORT)) as server:
        iperf = subprocess.Popen(
            ["iperf3", "-s", "-p", str(IPERF_PORT), "--forceflush", "-f", "k"], stdout=subprocess.PIPE
        )
        try:
            control, _ = server.accept()
            assert iperf.stdout is not None
            while b"listening" not in iperf.stdout.readline():
                pass
            control.sendall(b"\n")
            for _ in range(transfers):
                connection, _ = server.accept()
                with connection:
                    while connection.recv(1 << 16):
                        pass
                    connection.sendall(b"\n")
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while connection.recv(QUESTION_BYTES, socket.MSG_WAITALL):
                    connection.sendall(bytes(ANSWER_BYTES))
            control.recv(1)  # until the other has ended
        finally:
            iperf.terminate()
            iperf.wait(10)


def _transfer(address: str) -> float:
    """Seconds from the connection's beginning until the receiver says that it has everything."""
    begin_s = time.monotonic()
    with socket.create_connection((address, PORT)) as connection:
        connection.sendall(bytes(TRANSFER_BYTES))
        connection.shutdown(socket.SHUT_WR)
        _line(connection)
    return time.monotonic() - begin_s


def _questions(address: str) -> list[float]:
    taken_s = []
    with socket.create_connection((address, PORT)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(QUESTIONS):
            begin_s = time.monotonic()
            connection.sendall(bytes(QUESTION_BYTES))
            connection.recv(ANSWER_BYTES, socket.MSG_WAITALL)
            taken_s.append(time.monotonic() - begin_s)
    return taken_s


def _connect(address: str) -> socket.socket:
    deadline_s = time.monotonic() + START_LIMIT_S
    while True:
        try:
            return socket.create_connection((address, PORT), timeout=START_LIMIT_S)
        except OSError:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _line(connection: socket.socket) -> None:
    if not connection.recv(1):
        raise ConnectionError("the other node has ended")


def _told(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
