"""A rate with a drop-tail queue before it: when does a frame that reaches it now leave, or is there no room?

Nothing is queued here. As a queue is served in order and at a known rate, the time at which the link falls free says
all about it: what is sent between now and then is what waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from bwbench.network.link import ETHERNET_FRAME_BYTES
from bwbench.network.relay.model import Direction


class Bottleneck:
    """A constant rate behind a queue that counts bytes: the case that most links are, and a few operations a frame.

    Attributes:
        free_s: when everything that has been taken so far has left.
    """

    __slots__ = ("_queue_s", "_seconds_per_byte", "free_s")

    def __init__(self, direction: Direction) -> None:
        self.free_s = 0.0
        self._seconds_per_byte = 8 / direction.rate_bps
        self._queue_s = (direction.queue_bytes + 0.5) * self._seconds_per_byte  # half a byte against rounding

    def take(self, now_s: float, num_bytes: int) -> float | None:
        """When a frame that comes at ``now_s`` has been sent; None where it finds no room. Calls come in time order.

        An empty queue takes any frame, even one that is larger than the queue.
        """
        duration_s = num_bytes * self._seconds_per_byte
        free_s = self.free_s
        if free_s <= now_s:
            free_s = now_s
        elif free_s - now_s + duration_s > self._queue_s:
            return None
        self.free_s = free_s = free_s + duration_s
        return free_s

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """See ``VariedBottleneck``: nothing changes here."""
        return lambda time_s: time_s


class VariedBottleneck:
    """The same with a rate that changes over time, with a queue that counts packets, or both.

    A queue that counts bytes holds these bytes at any rate: how long they wait depends on what the rate does meanwhile.
    """

    __slots__ = (
        "_departures",
        "_queue_bits",
        "_queue_packets",
        "_rate_bps",
        "_since_s",
        "_trace",
        "_waiting",
        "free_s",
    )

    def __init__(self, direction: Direction) -> None:
        self.free_s = 0.0
        self._rate_bps = direction.rate_bps
        self._trace = direction.trace
        self._since_s: float | None = None
        self._queue_bits = (direction.queue_bytes + 0.5) * 8
        self._queue_packets = direction.queue_packets
        self._departures: deque[tuple[float, int]] = deque()  # (time, packets); kept only where packets are counted
        self._waiting = 0  # packets in ``_departures``

    def take(self, now_s: float, num_bytes: int) -> float | None:
        """See ``Bottleneck``."""
        num_bits, free_s = num_bytes * 8, self.free_s
        if self._queue_packets is not None:
            departures, num_packets = self._departures, packets_of(num_bytes)
            while departures and departures[0][0] <= now_s:
                self._waiting -= departures.popleft()[1]
            if departures and self._waiting + num_packets > self._queue_packets:
                return None
        elif free_s > now_s and self._bits_between(now_s, free_s, self._since_s) + num_bits > self._queue_bits:
            return None
        self.free_s = free_s = self._finish(max(free_s, now_s), num_bits)
        if self._queue_packets is not None:
            departures.append((free_s, num_packets))
            self._waiting += num_packets
        return free_s

    def switch(self, now_s: float, since_s: float | None) -> Callable[[float], float]:
        """From ``now_s`` on follow the trace that began at ``since_s``; None is the steady mean rate.

        Returns, as a function, when what was to have been sent by some time has been sent now.
        """
        before_s = self._since_s
        self._since_s = since_s

        def moved(time_s: float) -> float:
            if time_s <= now_s:
                return time_s
            return self._finish(now_s, self._bits_between(now_s, time_s, before_s))

        self.free_s = moved(self.free_s)
        self._departures = deque((moved(time_s), packets) for time_s, packets in self._departures)
        return moved

    def _finish(self, start_s: float, num_bits: float) -> float:
        since_s = self._since_s
        if since_s is None or self._trace is None:
            return start_s + num_bits / self._rate_bps
        return since_s + self._trace.finish(max(start_s - since_s, 0.0), num_bits)

    def _bits_between(self, begin_s: float, end_s: float, since_s: float | None) -> float:
        if since_s is None or self._trace is None:
            return (end_s - begin_s) * self._rate_bps
        return self._trace.bits_between(max(begin_s - since_s, 0.0), max(end_s - since_s, 0.0))


def bottleneck(direction: Direction) -> Bottleneck | VariedBottleneck:
    """The cheapest one that does what the direction asks for."""
    plain = direction.trace is None and direction.queue_packets is None
    return Bottleneck(direction) if plain else VariedBottleneck(direction)


def packets_of(num_bytes: int) -> int:
    """How many packets a frame counts as: one, or as many full ones as a super-packet makes."""
    return -(-num_bytes // ETHERNET_FRAME_BYTES)
