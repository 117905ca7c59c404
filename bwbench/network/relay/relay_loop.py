"""The relay's own process: move frames from port to port when the schedule says so."""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Sequence

from bwbench.network.relay.port import DESTINATION, GSO_TYPE, SMALLEST_DATA_FRAME, VNET_BYTES, RelayPort, charge
from bwbench.network.relay.schedule import NEVER, AbstractSchedule
from bwbench.network.relay.shared_memory import PairTally, Playback, RelayStatistics
from bwbench.network.relay.timing import Priority, WakeUp

_LONGEST_SLEEP_MS = 500
_DEAF_S = (0.0001, 0.002)  # at least, for it costs much; at most, for a burst must not overrun the receive rings
_FLUSH_S = 0.02
_WATCH_S = 0.1


class Relay:
    """Forwards by destination address; frames for nobody here (broadcast, multicast) are ignored.

    Args:
        macs: the nodes' addresses as they stand in a frame, one a port.
        largest_bytes: of the packets that come.

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
        largest_bytes: int,
    ) -> None:
        self._ports = ports
        self._sends = [port.send for port in ports]
        self._node_of = {mac: node for node, mac in enumerate(macs)}
        self._tallies: list[dict[bytes, PairTally]] = [{} for _ in macs]
        self._schedule = schedule
        self._statistics = statistics
        self._playback = playback
        self._wake_up = WakeUp(schedule.look_ahead_s(), schedule.shortest_time_s(largest_bytes))
        self._flushed_s = self._watched_s = time.monotonic()
        self._used_s = time.process_time()
        self._turns = 0
        self.priority = Priority()

    def run(self) -> None:
        """Relay for ever."""
        gc.freeze()
        gc.disable()  # nothing here makes cycles, and a collection would make a frame late
        waiter = select.poll()
        for port in self._ports:
            waiter.register(port.socket.fileno(), select.POLLIN)
        schedule, wake_up, monotonic = self._schedule, self._wake_up, time.monotonic
        deaf_s = min(max(schedule.look_ahead_s(), _DEAF_S[0]), _DEAF_S[1])
        looked_s = now_s = monotonic()
        look_s = next_s = due_s = 0.0  # when to look for what has come, when something happens, when a frame is due
        while True:
            # Frames that come meanwhile carry the time at which they came, and none can be due before the look-ahead
            # is over. Not waking for them halves the relay's work, and spares the senders the waking.
            if now_s > look_s - 0.25 * deaf_s or next_s < due_s:
                self._playback.obey(schedule.switch)
                self._take_in(looked_s, now_s)
                schedule.advance(now_s)
                looked_s, look_s = now_s, now_s + deaf_s
            self._send_due()
            self._turns += 1
            if now_s - self._flushed_s > _FLUSH_S:
                self._flush(now_s)
            next_s, due_s = schedule.next_time(), schedule.next_due()
            if next_s is NEVER:
                self._flush(now_s)
                waiter.poll(_LONGEST_SLEEP_MS)
                look_s = 0.0
            else:
                known_s, unknown_s = wake_up.time_for(next_s, due_s), wake_up.time_to_look(look_s)
                until_s = known_s if known_s < unknown_s else unknown_s
                sleep_s = until_s - monotonic()
                if sleep_s > 0:
                    time.sleep(sleep_s)
                    wake_up.woke(monotonic() - until_s)
            now_s = monotonic()

    def _take_in(self, earliest_s: float, now_s: float) -> None:
        """Submit what has come since ``earliest_s``, the last time that we looked."""
        clock_offset_s = time.time() - now_s  # read anew each time, since somebody may set the clock
        submit, touch = self._schedule.submit, self._statistics.touch
        for src, port in enumerate(self._ports):
            tallies = self._tallies[src]
            for came_s, frame in port.receive(clock_offset_s):
                tally = tallies.get(frame[DESTINATION]) or self._find(src, frame)
                if tally is None:
                    continue
                if len(frame) >= SMALLEST_DATA_FRAME and not frame[GSO_TYPE]:
                    wire_bytes = len(frame) - VNET_BYTES
                    tally.frames += 1
                    tally.bytes += wire_bytes
                else:
                    frames, wire_bytes, is_ack = charge(frame)
                    tally.add(frames, wire_bytes, is_ack=is_ack)
                if not tally.changed:
                    touch(tally)
                came_s = earliest_s if came_s < earliest_s else now_s if came_s > now_s else came_s
                submit(came_s, src, tally.dst, wire_bytes, frame)

    def _find(self, src: int, frame: bytes) -> PairTally | None:
        """The counters of the pair that a frame belongs to, None where it is for nobody else here."""
        mac = frame[DESTINATION]
        dst = self._node_of.get(mac)
        if dst is None or dst == src:
            return None
        return self._tallies[src].setdefault(mac, self._statistics.tally(src, dst))

    def _send_due(self) -> None:
        """Send what is due, and what nearly is."""
        pop_due, monotonic, sends, early_s = self._schedule.pop_due, time.monotonic, self._sends, self._wake_up.early_s
        lateness_s = []
        now_s = monotonic()
        while (due := pop_due(now_s + early_s)) is not None:
            due_s, dst, frame = due
            try:
                sends[dst](frame)
            except OSError:
                self._statistics.unsent()
            lateness_s.append(now_s - due_s)
            now_s = monotonic()
        if lateness_s:
            self._statistics.late(lateness_s)
            self._wake_up.sent(len(lateness_s), sum(lateness_s))

    def _flush(self, now_s: float) -> None:
        self._flushed_s = now_s
        self._statistics.flush()
        if now_s - self._watched_s > _WATCH_S:
            used_s = time.process_time()
            self._wake_up.busy((used_s - self._used_s) / (now_s - self._watched_s))
            self._watched_s, self._used_s = now_s, used_s
            for port in self._ports:
                overruns = port.overruns()
                if overruns:
                    self._statistics.overrun(overruns)
            self._statistics.used(self._turns)
            self._turns = 0
            self.priority.keep_fair(now_s)
