"""iperf3 between nodes: TCP and UDP flows, several at once, and what the receivers saw."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bwbench.network.link import UDP_PAYLOAD_BYTES
from bwbench.network.network import Network
from link_accuracy_parts.tools import MeasurementError, Tool, program

FIRST_PORT = 5201
LISTEN_LIMIT_S = 10.0
PATIENCE_S = 20.0  # beyond its time, for a flow whose last words stand in a long queue
# [  5]   1.00-2.00   sec   610 KBytes  4993 Kbits/sec ... 0/424 (0%)
_INTERVAL = re.compile(r"\]\s+([\d.]+)-([\d.]+)\s+sec\s.*\s([\d.]+) Kbits/sec")


@dataclass(frozen=True)
class Flow:
    """One flow from a node to another.

    Attributes:
        udp_bps: payload bits per second of UDP; None is TCP, as fast as it goes.
        omit_s: left out of the figures at the beginning (TCP's slow start).
        payload_bytes: of a datagram.
        num_bytes: ends TCP after so much instead of after ``seconds``.
    """

    src: int
    dst: int
    seconds: float
    udp_bps: float | None = None
    omit_s: int = 0
    payload_bytes: int = UDP_PAYLOAD_BYTES


@dataclass
class Outcome:
    """What came of a flow.

    Attributes:
        goodput_bps: payload that arrived per second, by the receiver's count. Of UDP: the mean of whole intervals
            without the first and the last one, in which the queue fills and empties.
        intervals: the receiver's (time at which the interval ended, its length in s, bit/s).
        lost, packets: UDP datagrams, by the numbers that they carry.
        congestion: which TCP it was.
    """

    goodput_bps: float
    intervals: list[tuple[float, float, float]] = field(default_factory=list)
    lost: int = 0
    packets: int = 0
    congestion: str = ""


class RunningFlow:
    """A flow that has been started; ``finish`` waits for it."""

    def __init__(self, network: Network, flow: Flow, port: int, interval_s: float = 1.0) -> None:
        self.flow = flow
        iperf3, address = program("iperf3"), network.nodes[flow.dst].data_address
        server = ["-s", "-1", "-B", address, "-p", str(port), "-i", f"{interval_s:g}", "-f", "k", "--forceflush"]
        self.server = Tool(network, flow.dst, [iperf3, *server])
        self._network = network
        self._client: Tool | None = None
        self._argv = [iperf3, "-c", address, "-p", str(port), "-t", f"{flow.seconds:g}", "-J"]
        self._argv += ["--connect-timeout", "10000"]
        if flow.omit_s:
            self._argv += ["-O", str(flow.omit_s)]
        if flow.udp_bps is not None:
            self._argv += ["-u", "-b", f"{flow.udp_bps:.0f}", "-l", str(flow.payload_bytes)]

    def start(self) -> None:
        """Begin to send; the server has to listen by then."""
        self.server.wait_for("listening", LISTEN_LIMIT_S)
        self._client = Tool(self._network, self.flow.src, self._argv)

    def finish(self) -> Outcome:
        """Wait for its end. Raises MeasurementError where iperf3 fails."""
        assert self._client is not None
        report = _report(self._client.finish(self.flow.seconds + self.flow.omit_s + PATIENCE_S, allowed=(0, 1)))
        self.server.finish(PATIENCE_S)
        received = report["end"].get("sum_received") or report["end"]["sum"]
        intervals = self.intervals()
        if self.flow.udp_bps is None:
            return Outcome(received["bits_per_second"], intervals, congestion=report["end"]["sender_tcp_congestion"])
        whole = [rate_bps for _, _, rate_bps in intervals[1:-1]] or [received["bits_per_second"]]
        total = report["end"]["sum"]
        return Outcome(statistics.fmean(whole), intervals, total["lost_packets"], total["packets"])

    def intervals(self) -> list[tuple[float, float, float]]:
        """Whole intervals of the receiver so far, those left out at the beginning excepted."""
        found = []
        for came_s, line in list(self.server.lines):
            match = _INTERVAL.search(line)
            if match is None or "receiver" in line or "omitted" in line:
                continue
            length_s = float(match[2]) - float(match[1])
            if length_s > 0.05:  # the rest after the last whole interval
                found.append((came_s, length_s, float(match[3]) * 1e3))
        return found

    def stop(self) -> None:
        """End both sides, whatever they are doing."""
        for tool in (self._client, self.server):
            if tool is not None:
                tool.stop()


def run_flows(network: Network, flows: Sequence[Flow], interval_s: float = 1.0) -> list[Outcome]:
    """All flows at the same time; outcomes in their order."""
    running = [RunningFlow(network, flow, FIRST_PORT + number, interval_s) for number, flow in enumerate(flows)]
    try:
        for flow in running:
            flow.start()
        return [flow.finish() for flow in running]
    finally:
        for flow in running:
            flow.stop()


def wait_for_intervals(running: Sequence[RunningFlow], number: int, limit_s: float) -> None:
    """Wait until each flow has reported so many intervals."""
    deadline_s = time.monotonic() + limit_s
    while any(len(flow.intervals()) < number for flow in running):
        if time.monotonic() > deadline_s:
            raise MeasurementError(f"a flow did not report {number} intervals within {limit_s:g} s")
        time.sleep(0.02)


def _report(text: str) -> dict[str, Any]:
    try:
        report: dict[str, Any] = json.loads(text[text.index("{") :])
    except ValueError:
        raise MeasurementError(f"iperf3 gave no report: {text[-200:]}") from None
    if "error" in report:
        raise MeasurementError(f"iperf3: {report['error']}")
    return report
