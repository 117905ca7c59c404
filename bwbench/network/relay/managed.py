"""Switched links whose queues are managed: what leaves next is decided when the link falls free, and not before.

A drop-tail queue can say at once when a packet leaves (``switched.py``). A discipline cannot: it drops packets that
have waited, or lets one overtake another. So packets wait here, and decisions are taken in the order of their times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from bwbench.network.link.discipline import CoDel, FqCoDel, Pie, Red
from bwbench.network.relay.cross_traffic import AbstractSource, sources_of
from bwbench.network.relay.disciplines import (
    AbstractQueue,
    CoDelQueue,
    DropTailQueue,
    FqCoDelQueue,
    ItemT,
    Packet,
    Room,
)
from bwbench.network.relay.early_drops import PieQueue, RedQueue, numbers
from bwbench.network.relay.schedule import NEVER, Direction, FrameT, OnDrop, RelayModel, packets_of
from bwbench.network.relay.switched import GrantedLine, Line, SwitchedSchedule

_HeadedT = TypeVar("_HeadedT")


class Headers(Protocol[_HeadedT]):
    """What a queue reads and writes in a frame."""

    def flow(self, frame: _HeadedT) -> int:
        """A number that all frames of one connection and direction share, and hardly any others."""

    def marked(self, frame: _HeadedT) -> _HeadedT | None:
        """The frame with congestion experienced (RFC 3168); None where its ends take no part in that."""


def queue_of(
    direction: Direction,
    frame_bytes: int,
    seed: str,
    dropped: Callable[[Packet[ItemT]], None],
    mark: Callable[[Packet[ItemT]], bool],
) -> AbstractQueue[ItemT]:
    """The queue that ``direction`` asks for; ``seed`` is that of its random numbers."""
    asked, room = direction.discipline, Room(direction.queue_bytes, direction.queue_packets, frame_bytes)
    if isinstance(asked, FqCoDel):
        return FqCoDelQueue(asked, room, dropped, mark)
    if isinstance(asked, CoDel):
        return CoDelQueue(asked, room, dropped, mark)
    if isinstance(asked, Pie):
        return PieQueue(asked, room, dropped, mark, numbers(seed))
    if isinstance(asked, Red):
        return RedQueue(asked, room, dropped, mark, numbers(seed), direction.rate_bps)
    return DropTailQueue(room, dropped, mark)


@dataclass(slots=True)
class _OfOthers(Packet[Any]):
    """A packet of cross traffic: from nowhere to nowhere."""

    source: AbstractSource | None = None


class ManagedBottleneck(Generic[ItemT]):
    """A rate behind a queue that decides when the link falls free. Calls come in the order of their times.

    Args:
        make_queue: makes the queue, of what is told of packets that are dropped, and what marks them.
        sent: told of each packet that is sent, with the time at which its last bit is.
        dropped: told of each one that is dropped.
        mark: see ``AbstractQueue``.
        sources: of cross traffic, which is told of by nobody else.
        frame_bytes: of their packets.
    """

    def __init__(
        self,
        line: Line,
        make_queue: Callable[[Callable[[Packet[ItemT]], None], Callable[[Packet[ItemT]], bool]], AbstractQueue[ItemT]],
        sent: Callable[[float, Packet[ItemT]], None],
        dropped: Callable[[Packet[ItemT]], None],
        mark: Callable[[Packet[ItemT]], bool],
        sources: Sequence[AbstractSource] = (),
        frame_bytes: int = 0,
    ) -> None:
        self._line, self._sent, self._tell_dropped, self._mark = line, sent, dropped, mark
        self._sources, self._frame_bytes = sources, frame_bytes
        self._queue = make_queue(self._dropped, self._marked)
        self._free_s = 0.0
        self._ready_s = 0.0  # when the queue was last empty until
        self._now_s = 0.0

    def put(self, now_s: float, packet: Packet[ItemT]) -> None:
        """A packet has come. What happens to it, ``serve`` decides."""
        self.serve(now_s)
        self._put(now_s, packet)

    def serve(self, until_s: float) -> None:
        """Every packet that came before ``until_s`` has been put: send what can begin by then."""
        if not self._sources:
            self._send(until_s)
            return
        while (decision_s := self.next_s()) <= until_s:
            source = min(self._sources, key=_next_of)
            if self._decision_s() <= source.next_s:
                self._send(decision_s)
                continue
            for _ in range(source.step()):
                self._put(decision_s, _OfOthers(None, self._frame_bytes, flow=source.flow, source=source))

    def next_s(self) -> float:
        """When it has to decide again; ``NEVER`` where nothing waits."""
        decision_s = self._decision_s()
        return min(decision_s, min(self._sources, key=_next_of).next_s) if self._sources else decision_s

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """See ``VariedBottleneck``; cross traffic begins, or ends."""
        moved = self._line.switch(now_s, since_s)
        self._free_s = moved(self._free_s)
        for source in self._sources:
            source.stop() if since_s is None else source.start(now_s)
        return moved

    def become(self, now_s: float, direction: Direction) -> Callable[[float], float]:
        """See ``VariedBottleneck``; its discipline stays what it is, with its times. A share of the rate follows it."""
        moved = self._line.become(now_s, direction)
        self._free_s = moved(self._free_s)
        room = Room(direction.queue_bytes, direction.queue_packets, self._frame_bytes)
        self._queue.become(room, direction.rate_bps)
        for source in self._sources:
            source.become(now_s, direction.rate_bps)
        return moved

    def _decision_s(self) -> float:
        if not self._queue.num_packets:
            return NEVER
        return self._free_s if self._free_s > self._ready_s else self._ready_s

    def _put(self, now_s: float, packet: Packet[ItemT]) -> None:
        self._now_s = now_s
        if not self._queue.num_packets:
            self._ready_s = now_s
        sending_bytes = self._line.bits_between(now_s, self._free_s) / 8 if self._free_s > now_s else 0.0
        self._queue.put(now_s, packet, sending_bytes)

    def _send(self, until_s: float) -> None:
        queue = self._queue
        while queue.num_packets:
            start_s = self._free_s if self._free_s > self._ready_s else self._ready_s
            if start_s > until_s:
                return
            self._now_s = start_s
            packet = queue.take(start_s)
            if packet is None:
                return
            self._free_s = self._line.finish(start_s, packet.num_bytes * 8)
            if isinstance(packet, _OfOthers) and packet.source is not None:
                packet.source.sent(self._free_s)
            else:
                self._sent(self._free_s, packet)

    def _dropped(self, packet: Packet[ItemT]) -> None:
        if isinstance(packet, _OfOthers) and packet.source is not None:
            packet.source.dropped(self._now_s)
        else:
            self._tell_dropped(packet)

    def _marked(self, packet: Packet[ItemT]) -> bool:
        return not isinstance(packet, _OfOthers) and self._mark(packet)


def _next_of(source: AbstractSource) -> float:
    return source.next_s


_Under = tuple[int, int, FrameT]  # (src, dst, frame)


class ManagedSchedule(SwitchedSchedule[FrameT]):
    """The switched link where disciplines manage queues, before some of its bottlenecks or before all.

    A packet that is dropped at its sender's end has not entered the link, as one that finds no room there.

    Args:
        headers: tells the flow of a frame, and marks it.
    """

    def __init__(self, model: RelayModel, on_drop: OnDrop[FrameT], headers: Headers[FrameT]) -> None:
        super().__init__(model, on_drop)
        self._headers = headers
        self._up: dict[int, ManagedBottleneck[_Under[FrameT]]] = {}
        self._down: dict[int, ManagedBottleneck[_Under[FrameT]]] = {}
        for node, (up, down) in enumerate(zip(model.up, model.down, strict=True)):
            if up.discipline is not None or self._decides_late("up", node):
                self._uplinks[node] = self._up[node] = self._managed(up, "up", node, self._has_left)
            if down.discipline is not None or self._decides_late("down", node):
                self._downlinks[node] = self._down[node] = self._managed(down, "down", node, self._has_come)
        self._deciding_up, self._deciding_down = [*self._up.values()], [*self._down.values()]

    def _decides_late(self, direction: str, node: int) -> bool:
        return self._model.link.demand is not None or any(
            one.concerns(node, direction) for one in self._model.link.cross_traffic
        )

    def _managed(
        self, asked: Direction, direction: str, node: int, sent: Callable[[float, Packet[_Under[FrameT]]], None]
    ) -> ManagedBottleneck[_Under[FrameT]]:
        def dropped(packet: Packet[_Under[FrameT]]) -> None:
            self._on_drop(*packet.item, entered=direction == "down")

        link, frame_bytes = self._model.link, self._frame_bytes
        make_queue = partial(queue_of, asked, frame_bytes, f"{link.seed} queue {direction} {node}")
        sources = sources_of(link.cross_traffic, node, direction, asked.rate_bps, frame_bytes, link.seed)
        line = GrantedLine(asked, link.demand) if link.demand else Line(asked)
        return ManagedBottleneck(line, make_queue, sent, dropped, self._mark, sources, frame_bytes)

    def submit(self, now_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        """See the base class."""
        managed = self._up.get(src)
        if managed is None:
            super().submit(now_s, src, dst, wire_bytes, frame)
        elif self._has_outages and self._is_dead(src, now_s):
            self._on_drop(src, dst, frame, entered=False)
        else:
            managed.put(now_s, self._packet(src, dst, wire_bytes, frame))

    def advance(self, now_s: float) -> None:
        """See the base class."""
        for managed in self._deciding_up:
            managed.serve(now_s)
        super().advance(now_s)
        for managed in self._deciding_down:
            managed.serve(now_s + self._settled_s)

    def next_time(self) -> float:
        """See the base class; what is decided at a sender's end matters only once it could reach the other one."""
        next_s = super().next_time()
        for managed in self._deciding_up:
            decision_s = managed.next_s() + self._settled_s
            if decision_s < next_s:
                next_s = decision_s
        for managed in self._deciding_down:
            decision_s = managed.next_s()
            if decision_s < next_s:
                next_s = decision_s
        return next_s

    def _packet(self, src: int, dst: int, wire_bytes: int, frame: FrameT) -> Packet[_Under[FrameT]]:
        packets = packets_of(wire_bytes, self._frame_bytes)
        return Packet((src, dst, frame), wire_bytes, packets, self._headers.flow(frame))

    def _mark(self, packet: Packet[_Under[FrameT]]) -> bool:
        src, dst, frame = packet.item
        marked = self._headers.marked(frame)
        if marked is None:
            return False
        packet.item = src, dst, marked
        return True

    def _has_left(self, sent_s: float, packet: Packet[_Under[FrameT]]) -> None:
        src, dst, frame = packet.item
        self._cross(sent_s, src, dst, packet.num_bytes, frame)

    def _reach(self, arrival_s: float, src: int, dst: int, wire_bytes: int, frame: FrameT) -> None:
        managed = self._down.get(dst)
        if managed is None:
            super()._reach(arrival_s, src, dst, wire_bytes, frame)
        else:
            managed.put(arrival_s, self._packet(src, dst, wire_bytes, frame))

    def _has_come(self, sent_s: float, packet: Packet[_Under[FrameT]]) -> None:
        _, dst, frame = packet.item
        self._leave(sent_s, dst, frame)
