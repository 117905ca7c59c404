"""Queues that drop by chance where a packet comes, before they are full: PIE by the delay, RED by the average queue."""

from __future__ import annotations

import random
from collections.abc import Callable

from bwbench.network.link.discipline import Pie, Red
from bwbench.network.relay.disciplines import AbstractQueue, ItemT, Packet, Room

# Of RFC 8033 and sch_pie.c.
_SURE, _NEVER_BEFORE = 8.5, 0.85  # sums of probabilities since the last drop: by then one is due, before then none is
_STEEP, _LARGEST_STEP = 0.1, 0.02  # above this probability it rises by no more at a time
_DECAY = 1 - 1 / 64  # of the probability in each update while nothing waits
_MARKED_AT_MOST = 0.1  # with a probability above that it drops what could be marked as well


class PieQueue(AbstractQueue[ItemT]):
    """Proportional integral controller enhanced, RFC 8033, with the delay that packets had (its time stamps).

    As sch_pie.c does it: sizes do not matter, and drops are spread by what the probabilities add up to.

    Args:
        draw: gives random numbers from 0 to 1.
    """

    def __init__(
        self,
        asked: Pie,
        room: Room,
        dropped: Callable[[Packet[ItemT]], None],
        mark: Callable[[Packet[ItemT]], bool],
        draw: Callable[[], float],
    ) -> None:
        super().__init__(room, dropped, mark)
        self._asked, self._draw = asked, draw
        self.probability = self._accumulated = 0.0
        self._delay_s = self._delay_before_s = 0.0
        self._burst_s = asked.burst_s
        self._update_at_s: float | None = None  # counted from the first packet
        self._left_s: float | None = None  # when the last one left

    def put(self, now_s: float, packet: Packet[ItemT], sending_bytes: float = 0.0) -> None:
        """See the base class."""
        self._update(now_s)
        packet.came_s = now_s
        if not self._room.has(self.num_bytes + packet.num_bytes, self.num_packets + packet.packets):
            self._drop(packet)
        elif not self._drops_early() or (
            self._asked.ecn and self.probability <= _MARKED_AT_MOST and self._marked(packet)
        ):
            self._append(packet)
        else:
            self._drop(packet)

    def take(self, now_s: float) -> Packet[ItemT] | None:
        """See the base class."""
        self._update(now_s)
        packet = self._pop()
        if packet is None:
            return None
        self._delay_s = now_s - packet.came_s if self.num_bytes else 0.0
        since_s = now_s - self._left_s if self._left_s is not None else 0.0
        self._left_s = now_s
        self._burst_s = max(0.0, self._burst_s - since_s)
        return packet

    def _drop(self, packet: Packet[ItemT]) -> None:
        self._accumulated = 0.0
        self._dropped(packet)

    def _drops_early(self) -> bool:
        if self._burst_s > 0 or (self._delay_s < self._asked.target_s / 2 and self.probability < 0.2):
            return False
        if self.num_bytes < 2 * self._room.frame_bytes:
            return False
        self._accumulated = self._accumulated + self.probability if self.probability else 0.0
        if self._accumulated < _NEVER_BEFORE:
            return False
        if self._accumulated >= _SURE:
            return True
        if self._draw() < self.probability:
            self._accumulated = 0.0
            return True
        return False

    def _update(self, now_s: float) -> None:
        """Every update that was due by now; the queue has not changed since the one before."""
        if self._update_at_s is None:
            self._update_at_s = now_s + self._asked.update_s
        while self._update_at_s <= now_s:
            self._update_at_s += self._asked.update_s
            self._reckon()
            if not (self.num_bytes or self.probability or self._delay_s or self._delay_before_s):
                missed = int((now_s - self._update_at_s) / self._asked.update_s)
                self._update_at_s += max(0, missed) * self._asked.update_s  # a long pause changes nothing more

    def _reckon(self) -> None:
        asked, delay_s, before_s = self._asked, self._delay_s, self._delay_before_s
        if not self.num_bytes:
            delay_s = 0.0
        share, power = 1.0, 0.1
        if self.probability < power:
            share, power = 0.5, 0.01
            while self.probability < power and power >= 1e-6:
                share, power = share / 4, power / 10
        delta = share * (asked.alpha_per_s * (delay_s - asked.target_s) + asked.beta_per_s * (delay_s - before_s))
        if delta > _LARGEST_STEP and self.probability >= _STEEP:
            delta = _LARGEST_STEP
        if delay_s > asked.long_s:
            delta += _LARGEST_STEP
        self.probability = min(1.0, max(0.0, self.probability + delta))
        if not delay_s and not before_s:
            self.probability *= _DECAY
            if self.probability < 1e-9:
                self.probability = 0.0
        self._delay_s, self._delay_before_s = delay_s, delay_s
        if delay_s < asked.target_s / 2 and before_s < asked.target_s / 2 and not self.probability:
            self._burst_s, self._accumulated = asked.burst_s, 0.0


class RedQueue(AbstractQueue[ItemT]):
    """Random early detection (Floyd and Jacobson, IEEE/ACM Transactions on Networking 1993), of bytes.

    The average is reckoned where a packet comes. A pause counts as so many packets that might have been sent.

    Args:
        draw: gives random numbers from 0 to 1.
        rate_bps: of the link.
    """

    def __init__(
        self,
        asked: Red,
        room: Room,
        dropped: Callable[[Packet[ItemT]], None],
        mark: Callable[[Packet[ItemT]], bool],
        draw: Callable[[], float],
        rate_bps: float,
    ) -> None:
        super().__init__(room, dropped, mark)
        self._asked, self._draw = asked, draw
        self.become(room, rate_bps)
        self.average_bytes = 0.0
        self._since_mark = -1  # packets since the last drop; -1 below the lower threshold
        self._idle_since_s: float | None = 0.0

    def become(self, room: Room, rate_bps: float) -> None:
        """See the base class: the thresholds are shares of the room, and a pause counts in packets at that rate."""
        super().become(room, rate_bps)
        self._packet_s = room.frame_bytes * 8 / rate_bps
        room_bytes = room.num_bytes if room.packets is None else room.packets * room.frame_bytes
        self._low_bytes, self._high_bytes = self._asked.low * room_bytes, self._asked.high * room_bytes

    def put(self, now_s: float, packet: Packet[ItemT], sending_bytes: float = 0.0) -> None:
        """See the base class."""
        packet.came_s = now_s
        if self._idle_since_s is not None:
            missed = (now_s - self._idle_since_s) / self._packet_s
            self.average_bytes *= (1 - self._asked.weight) ** missed
            self._idle_since_s = now_s
        else:
            self.average_bytes += self._asked.weight * (self.num_bytes - self.average_bytes)
        if self._drops_early() and not (self._asked.ecn and self._marked(packet)):
            self._dropped(packet)
        elif not self._room.has(self.num_bytes + packet.num_bytes, self.num_packets + packet.packets):
            self._since_mark = 0
            self._dropped(packet)
        else:
            self._idle_since_s = None
            self._append(packet)

    def take(self, now_s: float) -> Packet[ItemT] | None:
        """See the base class."""
        packet = self._pop()
        if not self.num_packets and self._idle_since_s is None:
            self._idle_since_s = now_s
        return packet

    def _drops_early(self) -> bool:
        if self.average_bytes < self._low_bytes:
            self._since_mark = -1
            return False
        if self.average_bytes >= self._high_bytes:
            self._since_mark = 0
            return True
        self._since_mark += 1
        into = (self.average_bytes - self._low_bytes) / (self._high_bytes - self._low_bytes)
        base = self._asked.probability * into
        left = 1 - self._since_mark * base  # drops are spread evenly: the second method of the paper
        if left <= 0 or self._draw() < base / left:
            self._since_mark = 0
            return True
        return False


def numbers(seed: str) -> Callable[[], float]:
    """Random numbers of a queue's own."""
    return random.Random(seed).random
