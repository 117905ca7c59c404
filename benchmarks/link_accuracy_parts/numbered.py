"""Flows of numbered datagrams between nodes (``datagrams.py``), and what can be told of what arrived."""

from __future__ import annotations

import itertools
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bwbench.network.network import Network
from link_accuracy_parts.tools import MeasurementError, Tool

PORT = 5301
SILENCE_S = 1.5  # longer than any delay that is measured here
_SCRIPT = str(Path(__file__).with_name("datagrams.py"))


@dataclass(frozen=True)
class Arrivals:
    """What came of one flow.

    Attributes:
        sent: how many were sent.
        numbers: those that came, in the order in which they came.
        delays_s: one-way delay of each.
        overflows: how many the receiving socket had no room for: they are not the link's.
    """

    sent: int
    numbers: Sequence[int]
    delays_s: Sequence[float]
    overflows: int

    @property
    def lost(self) -> int:
        """Datagrams that did not come."""
        return self.sent - len(set(self.numbers))

    @property
    def reordered(self) -> int:
        """Datagrams that came after one that had been sent after them (RFC 4737)."""
        highest = itertools.accumulate(self.numbers, max)
        return sum(1 for number, seen in zip(self.numbers, highest, strict=True) if number < seen)

    @property
    def delay_deviation_s(self) -> float:
        """Standard deviation of the one-way delay."""
        return statistics.stdev(self.delays_s)

    def bursts(self) -> list[int]:
        """Lengths of the runs of lost datagrams between two that came."""
        came = sorted(set(self.numbers))
        return [right - left - 1 for left, right in itertools.pairwise(came) if right - left > 1]


def exchange(network: Network, pairs: Sequence[tuple[int, int]], count: int, spacing_s: float) -> list[Arrivals]:
    """``count`` datagrams for each pair (sender, receiver), all pairs at the same time."""
    limit_s = 30.0 + 2 * count * spacing_s + SILENCE_S
    receivers, senders = [], []
    try:
        for _, dst in pairs:
            argv = [sys.executable, _SCRIPT, "receive", network.nodes[dst].data_address, str(PORT), str(SILENCE_S)]
            receivers.append(Tool(network, dst, argv))
        for receiver in receivers:
            receiver.wait_for("listening", 20.0)
        for src, dst in pairs:
            address = network.nodes[dst].data_address
            argv = [sys.executable, _SCRIPT, "send", address, str(PORT), str(count), str(spacing_s)]
            senders.append(Tool(network, src, argv))
        for sender in senders:
            sender.finish(limit_s)
        return [_arrivals(count, receiver.finish(limit_s)) for receiver in receivers]
    finally:
        for tool in (*senders, *receivers):
            tool.stop()


def _arrivals(sent: int, text: str) -> Arrivals:
    report = json.loads(text.splitlines()[-1])
    if not report["numbers"]:
        raise MeasurementError("no datagram arrived")
    delays_s = [delay_ns * 1e-9 for delay_ns in report["delays_ns"]]
    return Arrivals(sent, report["numbers"], delays_s, report["overflows"])
