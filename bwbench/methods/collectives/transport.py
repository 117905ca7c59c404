"""What crosses the network in a round: who takes part, the messages between them, and what they cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from bwbench.methods.collectives.segments import Span, aligned, buffer_bytes
from bwbench.methods.compression.codec import AbstractCodec
from bwbench.methods.deferred import dist, torch

Interval = tuple[float, float]  # begin and end on the monotonic clock, in seconds


@dataclass(frozen=True)
class Members:
    """Who averages together.

    Attributes:
        ranks: of the members in the process group, in the order in which they add up; the same on all of them.
        place: of this process among ``ranks``.
    """

    ranks: tuple[int, ...]
    place: int

    @classmethod
    def all_of(cls, group: dist.ProcessGroup | None) -> Members:
        """Every rank of a process group; this process alone where there is none."""
        return cls((0,), 0) if group is None else cls(tuple(range(group.size())), group.rank())

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.ranks)


@dataclass(frozen=True)
class Round:
    """One exchange of one bucket.

    Attributes:
        tag: marks its messages; concurrent rounds must not share it, all members must agree on it.
        members: who takes part.
    """

    tag: int
    members: Members

    @property
    def size(self) -> int:
        """How many take part."""
        return len(self.members.ranks)

    @property
    def place(self) -> int:
        """Of this process among the members."""
        return self.members.place


class Transport:
    """Messages to and from members of a round, over an explicit process group; counted.

    Args:
        group: never the default one: it decides which network the payload crosses.
        meter: counts what is sent.
    """

    def __init__(self, group: dist.ProcessGroup, meter: Meter) -> None:
        self.group = group
        self._meter = meter
        self._kept: dict[tuple[int, str], torch.Tensor] = {}

    def send(self, payload: torch.Tensor, to_place: int, round_: Round, payload_bytes: int | None = None) -> dist.Work:
        """Start sending; ``payload`` stays as it is until the returned work is waited for."""
        self._meter.sent(payload.numel() if payload_bytes is None else payload_bytes)
        return self.group.send([payload], round_.members.ranks[to_place], round_.tag)

    def receive(self, buffer: torch.Tensor, from_place: int, round_: Round) -> dist.Work:
        """Start receiving. gloo sends nothing before the receiver has announced its buffer: post early.

        A message may be shorter than ``buffer``: its tail stays as it was.
        """
        return self.group.recv([buffer], round_.members.ranks[from_place], round_.tag)

    def receive_all(
        self, spans: Sequence[Span], codec: AbstractCodec, from_place: int, round_: Round
    ) -> list[tuple[torch.Tensor, dist.Work]]:
        """Post all receives from one member: buffer and pending work of the message of each span."""
        sizes = [buffer_bytes(codec, end - begin) for begin, end in spans]
        room = self.buffer(round_.tag, f"from-{from_place}", sum(map(aligned, sizes)))
        offset, messages = 0, []
        for size in sizes:
            buffer = room[offset : offset + size]
            offset += aligned(size)
            messages.append((buffer, self.receive(buffer, from_place, round_)))
        return messages

    def buffer(self, tag: int, purpose: str, num_bytes: int) -> torch.Tensor:
        """Host memory, uint8 of shape [num_bytes], kept for the next round with the same tag."""
        buffer = self._kept.get((tag, purpose))
        if buffer is None or buffer.numel() < num_bytes:
            buffer = self._kept[tag, purpose] = torch.empty(num_bytes, dtype=torch.uint8)
        return buffer[:num_bytes]


@dataclass(frozen=True)
class MeterReading:
    """Payload bytes sent by this rank, and when it encoded, decoded or added, since the reading before."""

    payload_bytes: int
    codec_intervals: tuple[Interval, ...]

    def codec_s_within(self, begin_mono_s: float, end_mono_s: float) -> float:
        """Seconds of the window in which at least one thread did codec work."""
        clipped = [(max(a, begin_mono_s), min(b, end_mono_s)) for a, b in self.codec_intervals]
        return _union_s([(a, b) for a, b in clipped if a < b])


class Meter:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._payload_bytes = 0
        self._intervals: list[Interval] = []

    def sent(self, payload_bytes: int) -> None:
        """Count bytes that were handed to the network, as the codec claims them."""
        with self._lock:
            self._payload_bytes += payload_bytes

    @contextmanager
    def codec(self) -> Iterator[None]:
        """Count the time inside as codec work: encoding, decoding, adding."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.codec_worked(begin, time.monotonic())

    def codec_worked(self, begin_mono_s: float, end_mono_s: float) -> None:
        """Count an interval as codec work."""
        with self._lock:
            self._intervals.append((begin_mono_s, end_mono_s))

    def take(self) -> MeterReading:
        """What was counted since the last call. What is still in flight is counted so far, the rest next time."""
        with self._lock:
            reading = MeterReading(self._payload_bytes, tuple(self._intervals))
            self._payload_bytes, self._intervals = 0, []
        return reading


def _union_s(intervals: Sequence[Interval]) -> float:
    total_s, covered_until = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total_s += max(0.0, end - max(begin, covered_until))
        covered_until = max(covered_until, end)
    return total_s
