"""Queues that decide when a packet leaves: drop-tail, CoDel, and a CoDel for each flow. Pure, in virtual time.

A queue is told of each packet when it comes, and asked for the next one when the link falls free; calls come in the
order of their times. What RFCs leave open is as in the Linux kernel (``codel_impl.h``, ``sch_fq_codel.c``), so that the
two can be compared. Chance and early drops are in ``early_drops.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from bwbench.network.link.discipline import CoDel, FqCoDel

ItemT = TypeVar("ItemT")


@dataclass(slots=True)
class Packet(Generic[ItemT]):
    """What waits: anything, of ``num_bytes`` on the wire.

    Attributes:
        packets: as how many it counts.
        flow: packets with equal numbers belong to the same connection.
        came_s: when it came into the queue.
    """

    item: ItemT
    num_bytes: int
    packets: int = 1
    flow: int = 0
    came_s: float = 0.0


@dataclass(frozen=True)
class Room:
    """What a queue holds: bytes, or packets where that is not None; ``frame_bytes`` of a full frame."""

    num_bytes: float
    packets: int | None = None
    frame_bytes: int = 1514

    def has(self, num_bytes: float, packets: int) -> bool:
        """Whether so much fits."""
        return num_bytes <= self.num_bytes if self.packets is None else packets <= self.packets


class AbstractQueue(ABC, Generic[ItemT]):
    """Packets that wait.

    Args:
        room: what it holds at most.
        dropped: told of every packet that is dropped, on arrival or later.
        mark: marks a packet (ECN); False where that one cannot be marked.

    Attributes:
        num_bytes, num_packets: what waits.
        marks: how many packets have been marked.
    """

    def __init__(
        self, room: Room, dropped: Callable[[Packet[ItemT]], None], mark: Callable[[Packet[ItemT]], bool]
    ) -> None:
        self.num_bytes = self.num_packets = self.marks = 0
        self._room, self._dropped, self._mark = room, dropped, mark
        self._frames: deque[Packet[ItemT]] = deque()

    def put(self, now_s: float, packet: Packet[ItemT], sending_bytes: float = 0.0) -> None:
        """A packet has come; ``sending_bytes`` of the one before are still to be sent."""
        packet.came_s = now_s
        if not self._room.has(self.num_bytes + packet.num_bytes, self.num_packets + packet.packets):
            self._dropped(packet)
            return
        self._append(packet)

    def become(self, room: Room, rate_bps: float) -> None:
        """It holds so much from now on, before a link of that rate; what waits already stays."""
        self._room = room

    @abstractmethod
    def take(self, now_s: float) -> Packet[ItemT] | None:
        """The link is free: the packet that it sends now; None where none waits."""

    def _append(self, packet: Packet[ItemT]) -> None:
        self._frames.append(packet)
        self.num_bytes += packet.num_bytes
        self.num_packets += packet.packets

    def _pop(self) -> Packet[ItemT] | None:
        if not self._frames:
            return None
        packet = self._frames.popleft()
        self.num_bytes -= packet.num_bytes
        self.num_packets -= packet.packets
        return packet

    def _marked(self, packet: Packet[ItemT]) -> bool:
        is_marked = self._mark(packet)
        self.marks += is_marked
        return is_marked


class DropTailQueue(AbstractQueue[ItemT]):
    """First in, first out; what finds no room is dropped.

    The packet on its way out is part of it: the bytes that are left of it, or one packet. An empty queue takes any.
    """

    def put(self, now_s: float, packet: Packet[ItemT], sending_bytes: float = 0.0) -> None:
        """See the base class."""
        packet.came_s = now_s
        if self._frames or sending_bytes > 0:
            num_bytes = self.num_bytes + sending_bytes + packet.num_bytes - 0.5  # half a byte against rounding
            if not self._room.has(num_bytes, self.num_packets + packet.packets + (sending_bytes > 0)):
                self._dropped(packet)
                return
        self._append(packet)

    def take(self, now_s: float) -> Packet[ItemT] | None:
        """See the base class."""
        return self._pop()


_RECENT_INTERVALS = 16  # for so long CoDel remembers how often it had to drop (the kernel's choice; RFC 8289, 4.4)


class CoDelControl(Generic[ItemT]):
    """Controlled delay, RFC 8289: the state of one queue, wherever its packets are.

    A packet is dropped where those that left have waited longer than the target for a whole interval; then the next one
    an interval over the root of the number of drops later, for as long as that goes on.
    """

    def __init__(self, asked: CoDel, frame_bytes: int) -> None:
        self._asked, self._frame_bytes = asked, frame_bytes
        self._is_above_until_s: float | None = None  # when it will have been too long
        self._drop_next_s = 0.0
        self._is_dropping = False
        self.count = self._last_count = 0

    def take(
        self,
        now_s: float,
        pop: Callable[[], Packet[ItemT] | None],
        backlog: Callable[[], int],
        dropped: Callable[[Packet[ItemT]], None],
        mark: Callable[[Packet[ItemT]], bool],
    ) -> Packet[ItemT] | None:
        """The packet to send now, after those that had to be dropped before it; None where none is left."""
        packet = pop()
        if packet is None:
            self._is_dropping = False
            self._is_above_until_s = None
            return None
        drop = self._should_drop(now_s, packet, backlog())
        if self._is_dropping:
            if not drop:
                self._is_dropping = False
            while self._is_dropping and now_s >= self._drop_next_s:
                self.count += 1
                if self._asked.ecn and mark(packet):
                    self._drop_next_s = self._law(self._drop_next_s)
                    return packet
                dropped(packet)
                packet = pop()
                if packet is None or not self._should_drop(now_s, packet, backlog()):
                    self._is_dropping = False
                    if packet is None:
                        self._is_above_until_s = None
                        return None
                else:
                    self._drop_next_s = self._law(self._drop_next_s)
        elif drop:
            if not (self._asked.ecn and mark(packet)):
                dropped(packet)
                packet = pop()
                if packet is None:
                    self._is_above_until_s = None
                else:
                    self._should_drop(now_s, packet, backlog())
            self._is_dropping = True
            delta = self.count - self._last_count
            is_recent = now_s - self._drop_next_s < _RECENT_INTERVALS * self._asked.interval_s
            self.count = self._last_count = delta if delta > 1 and is_recent else 1
            self._drop_next_s = self._law(now_s)
        return packet

    def _should_drop(self, now_s: float, packet: Packet[ItemT], backlog_bytes: int) -> bool:
        """Whether packets have waited too long for an interval by now; a frame's worth may wait as long as it will."""
        if now_s - packet.came_s < self._asked.target_s or backlog_bytes <= self._frame_bytes:
            self._is_above_until_s = None
            return False
        if self._is_above_until_s is None:
            self._is_above_until_s = now_s + self._asked.interval_s
            return False
        return now_s > self._is_above_until_s

    def _law(self, time_s: float) -> float:
        return float(time_s + self._asked.interval_s / math.sqrt(self.count))


class CoDelQueue(AbstractQueue[ItemT]):
    """One queue for all, managed by CoDel."""

    def __init__(
        self, asked: CoDel, room: Room, dropped: Callable[[Packet[ItemT]], None], mark: Callable[[Packet[ItemT]], bool]
    ) -> None:
        super().__init__(room, dropped, mark)
        self._control = CoDelControl[ItemT](asked, room.frame_bytes)

    def take(self, now_s: float) -> Packet[ItemT] | None:
        """See the base class."""
        return self._control.take(now_s, self._pop, lambda: self.num_bytes, self._dropped, self._marked)


class _Flow(Generic[ItemT]):
    """One of the queues: what waits in it, what it may still send in its turn, and its CoDel."""

    __slots__ = ("control", "deficit", "frames", "is_listed", "num_bytes")

    def __init__(self, asked: FqCoDel, frame_bytes: int) -> None:
        self.frames: deque[Packet[ItemT]] = deque()
        self.control = CoDelControl[ItemT](asked, frame_bytes)
        self.num_bytes = 0
        self.deficit = 0.0
        self.is_listed = False


_DROP_BATCH = 64  # packets of the longest queue that make room at once (sch_fq_codel.c), as long as it is half as long


class FqCoDelQueue(AbstractQueue[ItemT]):
    """A queue for each flow, by deficit round robin, the new ones first; each managed by CoDel: RFC 8290.

    Where all of it is full, the longest queue loses up to half of what it holds, from its head.
    """

    def __init__(
        self,
        asked: FqCoDel,
        room: Room,
        dropped: Callable[[Packet[ItemT]], None],
        mark: Callable[[Packet[ItemT]], bool],
    ) -> None:
        super().__init__(room, dropped, mark)
        self._asked = asked
        self._flows: dict[int, _Flow[ItemT]] = {}
        self._new: deque[_Flow[ItemT]] = deque()
        self._old: deque[_Flow[ItemT]] = deque()

    def put(self, now_s: float, packet: Packet[ItemT], sending_bytes: float = 0.0) -> None:
        """See the base class."""
        packet.came_s = now_s
        number = packet.flow % self._asked.flows
        flow = self._flows.get(number)
        if flow is None:
            flow = self._flows[number] = _Flow(self._asked, self._room.frame_bytes)
        flow.frames.append(packet)
        flow.num_bytes += packet.num_bytes
        self.num_bytes += packet.num_bytes
        self.num_packets += packet.packets
        if not flow.is_listed:
            flow.is_listed = True
            flow.deficit = self._asked.quantum_bytes
            self._new.append(flow)
        if not self._room.has(self.num_bytes, self.num_packets):
            self._make_room()

    def take(self, now_s: float) -> Packet[ItemT] | None:
        """See the base class."""
        while True:
            turns = self._new or self._old
            if not turns:
                return None
            flow = turns[0]
            if flow.deficit <= 0:
                flow.deficit += self._asked.quantum_bytes
                turns.popleft()
                self._old.append(flow)
                continue
            packet = flow.control.take(
                now_s, partial(self._pop_of, flow), lambda: self.num_bytes, self._dropped, self._marked
            )
            if packet is not None:
                flow.deficit -= packet.num_bytes
                return packet
            turns.popleft()
            if turns is self._new and self._old:  # behind the old ones once, so that a short flow starves nobody
                self._old.append(flow)
            else:
                flow.is_listed = False

    def _pop_of(self, flow: _Flow[ItemT]) -> Packet[ItemT] | None:
        if not flow.frames:
            return None
        packet = flow.frames.popleft()
        flow.num_bytes -= packet.num_bytes
        self.num_bytes -= packet.num_bytes
        self.num_packets -= packet.packets
        return packet

    def _make_room(self) -> None:
        longest = max(self._flows.values(), key=lambda flow: flow.num_bytes)
        enough_bytes = longest.num_bytes / 2
        for _ in range(_DROP_BATCH):
            packet = self._pop_of(longest)
            if packet is None:
                return
            longest.control.count += 1
            self._dropped(packet)
            if longest.num_bytes <= enough_bytes:
                return
