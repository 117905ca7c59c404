"""The relay's own process: move frames from port to port when the schedule says so."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Sequence

from bwbench.network.relay.frames import charge, destination
from bwbench.network.relay.playback import Playback
from bwbench.network.relay.port import RelayPort
from bwbench.network.relay.priority import Priority
from bwbench.network.relay.schedule import NEVER, AbstractSchedule
from bwbench.network.relay.statistics import RelayStatistics

_LONGEST_SLEEP_S = 0.5
_LONGEST_DEAF_S = 0.002  # a burst at the speed of the machine must not overrun the receive rings
_OVERRUN_CHECK_S = 0.1


class Relay:
    """Forwards by destination address; frames for nobody here (broadcast, multicast) are ignored.

    Args:
        macs: the nodes' addresses as they stand in a frame, one a port.

    Attributes:
        priority: how this process is scheduled.
    """

    def __init__(
        self,
        ports: Sequence[RelayPort],
        macs: Sequence[bytes],
        schedule: AbstractSchedule[bytes],
        statistics: RelayStatistics,
        playback: Playback,
    ) -> None:
        self._ports = ports
        self._node_of = {mac: node for node, mac in enumerate(macs)}
        self._schedule = schedule
        self._statistics = statistics
        self._playback = playback
        self.priority = Priority()

    def run(self) -> None:
        """Relay for ever."""
        gc.freeze()
        gc.disable()  # nothing here makes cycles, and a collection would make a frame late
        waiter = select.epoll()  # one descriptor for all ports; itself waited for by select, which knows microseconds
        for port in self._ports:
            waiter.register(port.socket.fileno(), select.EPOLLIN)
        look_ahead_s = min(self._schedule.look_ahead_s(), _LONGEST_DEAF_S)
        polled_s = checked_s = time.monotonic()
        while True:
            earliest_s, polled_s = polled_s, time.monotonic()
            self._playback.obey(self._schedule)
            self._take_in(earliest_s, polled_s)
            self._schedule.advance(polled_s)
            self._send_due()
            if polled_s - checked_s > _OVERRUN_CHECK_S:
                checked_s = polled_s
                self._watch(polled_s)
            next_s = self._schedule.next_time()
            if next_s is NEVER:
                select.select([waiter], [], [], _LONGEST_SLEEP_S)
                continue
            # Frames that come meanwhile carry the time at which they came, and none can be due before the look-ahead
            # is over. Not waking for them halves the relay's work, and spares the senders the waking.
            now_s = time.monotonic()
            sleep_s = min(next_s, polled_s + look_ahead_s) - now_s
            if sleep_s > 0:
                time.sleep(sleep_s)

    def _take_in(self, earliest_s: float, now_s: float) -> None:
        """Submit what has come since ``earliest_s``, the last time that we looked."""
        clock_offset_s = time.time() - now_s  # read anew each time, since somebody may set the clock
        node_of, statistics, submit = self._node_of, self._statistics, self._schedule.submit
        for src, port in enumerate(self._ports):
            for realtime_s, frame in port.receive():
                if frame is None:
                    statistics.overrun(1)
                    continue
                dst = node_of.get(destination(frame))
                if dst is None or dst == src:
                    continue
                frames, wire_bytes, is_ack = charge(frame)
                statistics.sent(src, dst, frames, wire_bytes, is_ack)
                came_s = realtime_s - clock_offset_s
                came_s = earliest_s if came_s < earliest_s else now_s if came_s > now_s else came_s
                submit(came_s, src, dst, wire_bytes, frame)

    def _send_due(self) -> None:
        pop_due, monotonic = self._schedule.pop_due, time.monotonic
        now_s = monotonic()
        while (due := pop_due(now_s)) is not None:
            due_s, dst, frame = due
            try:
                self._ports[dst].socket.send(frame)
            except OSError:
                self._statistics.unsent()
            self._statistics.late(now_s - due_s)
            now_s = monotonic()

    def _watch(self, now_s: float) -> None:
        for port in self._ports:
            overruns = port.overruns()
            if overruns:
                self._statistics.overrun(overruns)
        self.priority.keep_fair(now_s)
