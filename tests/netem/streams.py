"""Streams of datagrams between nodes, and what they say about the path."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from bwbench.network.link.chance import SCALE, Distribution, quantiles
from bwbench.network.network import Network
from tests.netem.nodes import REPOSITORY, output_of

MODULE = "tests.netem.paced_datagrams"
SILENCE_S = 1.0  # after which nothing more is taken to come
HEADERS_BYTES = 42  # Ethernet, IPv4, UDP


@dataclass(frozen=True)
class Received:
    """What came of ``number`` datagrams: their numbers in the order in which they came, and the two times of each."""

    number: int
    frame_bytes: int
    numbers: tuple[int, ...]
    sent_s: tuple[float, ...]
    arrived_s: tuple[float, ...]

    @property
    def loss(self) -> float:
        return 1 - len(self.numbers) / self.number

    @property
    def delays_s(self) -> list[float]:
        return [arrived - sent for sent, arrived in zip(self.sent_s, self.arrived_s, strict=True)]

    @property
    def rate_bps(self) -> float:
        """Of a stream that keeps its bottleneck busy: bits of frames per second between first and last arrival."""
        return (len(self.numbers) - 1) * self.frame_bytes * 8 / (self.arrived_s[-1] - self.arrived_s[0])

    @property
    def is_in_order(self) -> bool:
        return list(self.numbers) == sorted(self.numbers)

    @property
    def bursts(self) -> list[int]:
        """How many were lost in a row, each time."""
        gaps = [later - earlier - 1 for earlier, later in zip(self.numbers, self.numbers[1:], strict=False)]
        return [gap for gap in gaps if gap]


def middle_deviation(values: Sequence[float]) -> float:
    """Standard deviation without the largest and the smallest percent: a machine makes single frames late."""
    ordered = sorted(values)
    cut = len(ordered) // 100
    return statistics.pstdev(ordered[cut : len(ordered) - cut])


def deviation_error(delays_s: Sequence[float], deviation_s: float, distribution: Distribution) -> float:
    """Relative error of the standard deviation of ``delays_s``, by the middle of it and of what was asked."""
    asked = [deviation_s * quantile / SCALE for quantile in quantiles(distribution)]
    return middle_deviation(delays_s) / middle_deviation(asked) - 1


def send(
    network: Network,
    src: int,
    dsts: Sequence[int],
    number: int,
    gap_s: float,
    payload_bytes: int,
    catches_up: bool = False,
) -> list[Received]:
    """Send ``number`` datagrams from one node to each of others; what came to each.

    Args:
        catches_up: whether a sender that had to wait makes up for it at once, so that a queue stays full.
    """
    with contextlib.ExitStack() as stack:
        streams, receivers = [], []
        for dst in dsts:
            read, write = os.pipe()
            words = [sys.executable, "-m", MODULE, "receive", str(SILENCE_S)]
            receivers.append(network.spawn(dst, words, cwd=REPOSITORY, stdout=write))
            os.close(write)
            streams.append(stack.enter_context(open(read, encoding="utf-8")))
        for stream in streams:
            assert stream.readline() == "ready\n"
        addresses = ",".join(network.nodes[dst].data_address for dst in dsts)
        words = [str(value) for value in (number, gap_s, payload_bytes, catches_up)]
        output_of(network, src, "python", "-m", MODULE, "send", addresses, *words)
        found = []
        for stream, receiver in zip(streams, receivers, strict=True):
            rows = json.loads(stream.readline())
            assert receiver.wait(10) == 0
            numbers, sent_s, arrived_s = zip(*rows, strict=True) if rows else ((), (), ())
            found.append(Received(number, payload_bytes + HEADERS_BYTES, numbers, sent_s, arrived_s))
    return found
