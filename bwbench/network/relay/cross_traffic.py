"""What others send over a node's link, generated inside the relay: pure, in virtual time.

Its packets wait in the queues that the nodes' frames wait in, take their time on the link, and are gone then: they come
from nowhere and go nowhere. A source is asked when it does something next, and told when its packets have been sent or
were dropped. TCP is told as its models have it: a window that grows by slow start and then by a packet a round trip,
and is halved once a round trip where something was lost (Reno with selective acknowledgements). Acknowledgements take
the rest of the round trip, and meet no queue.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from heapq import heappop, heappush

from bwbench.network.link.cross_traffic import CrossTraffic
from bwbench.network.relay.schedule import NEVER

_FIRST_WINDOW = 10.0  # packets; RFC 6928
_LEAST_WINDOW = 2.0
_PAGE_DEVIATION = 1.0  # of the logarithm of a page's size: sizes of pages spread that far (HTTP Archive)


class AbstractSource(ABC):
    """Sends packets into one queue.

    Attributes:
        flow: tells its packets from those of others.
        next_s: when it does something next; ``NEVER`` where it waits.
    """

    def __init__(self, flow: int) -> None:
        self.flow = flow
        self.next_s = NEVER

    @abstractmethod
    def start(self, now_s: float) -> None:
        """Begin at this time, as if for the first time."""

    def stop(self) -> None:
        """Send nothing more."""
        self.next_s = NEVER

    def become(self, now_s: float, rate_bps: float) -> None:  # noqa: B027 - a share alone goes by it
        """The link has another rate from now on."""

    @abstractmethod
    def step(self) -> int:
        """It is ``next_s``: how many packets it sends now. Afterwards ``next_s`` is a later time, or the same."""

    def sent(self, time_s: float) -> None:  # noqa: B027 - who never gives way need not know
        """One of its packets has left the link."""

    def dropped(self, time_s: float) -> None:  # noqa: B027
        """One of its packets was dropped in the queue."""


class ShareSource(AbstractSource):
    """Packets at distances that are drawn anew each time (a Poisson process), whatever becomes of them.

    Args:
        packets_per_bit: how many there are for each bit that the link could send.
        rate_bps: of the link.
    """

    def __init__(self, flow: int, packets_per_bit: float, rate_bps: float, seed: str) -> None:
        super().__init__(flow)
        self._packets_per_bit, self._rate_bps, self._seed = packets_per_bit, rate_bps, seed

    def start(self, now_s: float) -> None:
        """See the base class."""
        self._draw = random.Random(self._seed)
        self.next_s = now_s + self._distance_s()

    def become(self, now_s: float, rate_bps: float) -> None:
        """See the base class: the packet that is next comes sooner or later in proportion."""
        if self.next_s > now_s:
            self.next_s = now_s + (self.next_s - now_s) * self._rate_bps / rate_bps
        self._rate_bps = rate_bps

    def step(self) -> int:
        """See the base class."""
        self.next_s += self._distance_s()
        return 1

    def _distance_s(self) -> float:
        return self._draw.expovariate(self._packets_per_bit * self._rate_bps)


class Connection(AbstractSource):
    """One TCP connection that has something to send when ``give`` says so.

    Args:
        rtt_s: its round trip without the queue.
        done: told of the time at which the last packet was acknowledged.
    """

    def __init__(self, flow: int, rtt_s: float, done: Callable[[float], None] | None = None) -> None:
        super().__init__(flow)
        self._rtt_s, self._done = rtt_s, done
        self.reset()

    def reset(self) -> None:
        """A new connection."""
        self.window, self._threshold = _FIRST_WINDOW, math.inf
        self._left: float = 0
        self._in_flight = 0
        self._news: list[tuple[float, bool]] = []  # heap of (time, whether it is an acknowledgement)
        self._begin_s = self._recovers_until_s = -math.inf
        self.next_s = NEVER

    def start(self, now_s: float) -> None:
        """See the base class."""
        self.reset()
        self.give(now_s, math.inf)

    def stop(self) -> None:
        """See the base class."""
        self.reset()

    def give(self, now_s: float, packets: float) -> None:
        """So many packets more are to be sent from now on."""
        self._left += packets
        heappush(self._news, (now_s, True))
        self._in_flight += 1  # as if an acknowledgement had come, which opens the window by nothing
        self.window -= self._growth()
        self.next_s = self._news[0][0]

    def step(self) -> int:
        """See the base class."""
        now_s, is_acknowledged = heappop(self._news)
        self._in_flight -= 1
        if is_acknowledged:
            self.window += self._growth()
        else:
            self._left += 1
            if now_s > self._recovers_until_s:
                self._threshold = self.window = max(self.window / 2, _LEAST_WINDOW)
                self._recovers_until_s = now_s + self._rtt_s
        packets = int(max(0, min(self.window - self._in_flight, self._left)))
        self._left -= packets
        self._in_flight += packets
        self.next_s = self._news[0][0] if self._news else NEVER
        if not self._left and not self._in_flight and self._done is not None:
            self._done(now_s)
        return packets

    def _growth(self) -> float:
        return 1.0 if self.window < self._threshold else 1 / self.window

    def sent(self, time_s: float) -> None:
        """See the base class."""
        self._hear(time_s + self._rtt_s, is_acknowledged=True)

    def dropped(self, time_s: float) -> None:
        """See the base class: the packets behind it tell, a round trip later."""
        self._hear(time_s + self._rtt_s, is_acknowledged=False)

    def _hear(self, time_s: float, *, is_acknowledged: bool) -> None:
        if self._in_flight:  # else it has been stopped meanwhile
            heappush(self._news, (time_s, is_acknowledged))
            self.next_s = self._news[0][0]


class VideoSource(Connection):
    """A segment every so often, as fast as the link lets it."""

    def __init__(self, flow: int, rtt_s: float, segment_packets: float, segment_s: float) -> None:
        super().__init__(flow, rtt_s)
        self._segment_packets, self._segment_s = segment_packets, segment_s
        self._segment_at_s = NEVER

    def start(self, now_s: float) -> None:
        """See the base class."""
        self.reset()
        self._segment_at_s = self.next_s = now_s

    def stop(self) -> None:
        """See the base class."""
        super().stop()
        self._segment_at_s = NEVER

    def step(self) -> int:
        """See the base class."""
        packets = 0
        if self._segment_at_s <= self.next_s:
            self.give(self._segment_at_s, math.ceil(self._segment_packets))
            self._segment_at_s += self._segment_s
        else:
            packets = super().step()
        self.next_s = min(self._news[0][0] if self._news else NEVER, self._segment_at_s)
        return packets

    def _hear(self, time_s: float, *, is_acknowledged: bool) -> None:
        super()._hear(time_s, is_acknowledged=is_acknowledged)
        self.next_s = min(self.next_s, self._segment_at_s)


class WebSource(Connection):
    """A page over a new connection, a pause in which it is read, the next page.

    The connections of a browser are ``connections`` of these, each with its part of the page.
    """

    def __init__(self, flow: int, rtt_s: float, page_packets: float, pause_s: float, seed: str) -> None:
        super().__init__(flow, rtt_s, self._read)
        self._page_packets, self._pause_s, self._seed = page_packets, pause_s, seed
        self._page_at_s = NEVER

    def start(self, now_s: float) -> None:
        """See the base class."""
        self.reset()
        self._draw = random.Random(self._seed)
        self._read(now_s)

    def stop(self) -> None:
        """See the base class."""
        super().stop()
        self._page_at_s = NEVER

    def step(self) -> int:
        """See the base class."""
        if self._page_at_s > self.next_s:
            return super().step()
        now_s, self._page_at_s = self._page_at_s, NEVER
        self.reset()
        size = self._page_packets * self._draw.lognormvariate(-(_PAGE_DEVIATION**2) / 2, _PAGE_DEVIATION)
        self.give(now_s, max(1, round(size)))
        return 0

    def _read(self, now_s: float) -> None:
        self._page_at_s = self.next_s = now_s + self._draw.expovariate(1 / self._pause_s)


def sources_of(
    traffic: tuple[CrossTraffic, ...], node: int, direction: str, rate_bps: float, frame_bytes: int, seed: int
) -> list[AbstractSource]:
    """What there is on one direction of a node's link, of packets of ``frame_bytes``."""
    found: list[AbstractSource] = []
    for number, one in enumerate(traffic):
        if not one.concerns(node, direction):
            continue
        for connection in range(one.connections or 1):
            name = f"{seed} cross {number} {node} {direction} {connection}"
            flow = random.Random(name).getrandbits(32)
            found.append(_source(one, flow, rate_bps, frame_bytes, name))
    return found


def _source(one: CrossTraffic, flow: int, rate_bps: float, frame_bytes: int, seed: str) -> AbstractSource:
    if one.share is not None:
        return ShareSource(flow, one.share / 8 / frame_bytes, rate_bps, seed)
    if one.rate_bps is not None and one.segment_s is not None:
        return VideoSource(flow, one.rtt_s, one.rate_bps * one.segment_s / 8 / frame_bytes, one.segment_s)
    if one.page_bytes is not None and one.pause_s is not None:
        packets = one.page_bytes / frame_bytes / (one.connections or 1)
        return WebSource(flow, one.rtt_s, packets, one.pause_s, seed)
    return Connection(flow, one.rtt_s)
