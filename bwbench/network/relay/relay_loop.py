"""The relay's own process: move frames from port to port when the schedule says so, and be on time for it.

Waking up costs as much as several frames. So frames that are due at nearly the same time leave together: some of them a
little early, some a little late, on average neither. Network cards do likewise before they interrupt (``ethtool -c``),
and for about as long. A frame by itself, such as a ping on an idle link, leaves when it is due. On a machine whose
cores are busy training, a priority lets the relay run at all when it has woken up.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import pickle
import select
import struct
import time
from collections.abc import Sequence
from pathlib import Path

from bwbench.base.die_with_parent import prctl
from bwbench.network.relay.port import DESTINATION, GSO_TYPE, SMALLEST_DATA_FRAME, VNET_BYTES, RelayPort, charge
from bwbench.network.relay.schedule import NEVER, AbstractSchedule
from bwbench.network.relay.shared_memory import PairTally, Playback, RelayStatistics

_SHARE_OF_LATENCY = 1 / 6
_SHARE_OF_PACKET = 1 / 2  # bursts of several packets would fill a queue that they do not fill one by one
_FEWEST_S, _MOST_S = 50e-6, 400e-6  # no less, since waking up is no more exact than that
_LEARNING_RATE = 0.05
# From this share of a core on bursts are the lesser evil: waking up less often leaves time for more frames.
_BUSY, _VERY_BUSY = 0.4, 0.7

_GROUP = 1  # of a destination address's first byte: for many
_PR_SET_TIMERSLACK = 29
_NICE = -10
# Of a core: beyond that a real-time relay would keep others from running, who can move to another core if there is one.
_LARGEST_SHARE = 0.9 if (os.cpu_count() or 1) > 1 else 0.6
_CHECK_EVERY_S = 0.5

# Its arguments are in no library; the number of the system call depends on the processor.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS = 100_000


class WakeUp:
    """Decides on the time; learns how long waking up takes, and how many frames leave at a time.

    Args:
        look_ahead_s: the shortest way through the link.
        packet_s: how long the largest packet takes on the fastest link.

    Attributes:
        early_s: a frame may leave so long before it is due.
    """

    def __init__(self, look_ahead_s: float, packet_s: float) -> None:
        self._longest_s = max(min(look_ahead_s * _SHARE_OF_LATENCY, _MOST_S), _FEWEST_S)
        self._usual_s = self._most_s = max(min(packet_s * _SHARE_OF_PACKET, self._longest_s), _FEWEST_S)
        self.early_s = _FEWEST_S
        self._wait_s = 0.0
        self._takes_s = 0.0
        self._crowd = 1.0

    def time_for(self, next_s: float, due_s: float) -> float:
        """When to wake up for what happens at ``next_s``, where ``due_s`` is when the next frame is due."""
        return next_s + self._wait_s - self._takes_s if due_s <= next_s else next_s + self._wait_s

    def time_to_look(self, latest_s: float) -> float:
        """When to wake up for what nobody knows of yet, if it must be known at ``latest_s``."""
        return latest_s - self._takes_s

    def woke(self, late_s: float) -> None:
        """The sleep has ended so much later than it should have."""
        self._takes_s += _LEARNING_RATE * (min(late_s, _FEWEST_S) - self._takes_s)

    def busy(self, share: float) -> None:
        """The relay has lately used this share of a core."""
        excess = min(max((share - _BUSY) / (_VERY_BUSY - _BUSY), 0.0), 1.0)
        self._most_s = self._usual_s + excess * (self._longest_s - self._usual_s)

    def sent(self, frames: int, lateness_s: float) -> None:
        """So many frames have left at once, so late all together (less than 0: early).

        Of a crowd the first one waits as long as it takes to be right on average, and the others are early by what is
        left of the time that they may differ.
        """
        self._crowd += _LEARNING_RATE * (frames - self._crowd)
        window_s = max(_FEWEST_S, self._most_s * min(self._crowd - 1.0, 1.0))
        wait_s = self._wait_s - _LEARNING_RATE * max(min(lateness_s / frames, window_s), -window_s)
        self._wait_s = wait_s = max(0.0, min(wait_s, window_s))
        self.early_s = window_s - wait_s


class Priority:
    """The best scheduling this process is allowed: real time, else negative nice, else what everyone has.

    A real-time process that needs most of a core starves whatever shares that core, so ``keep_fair`` gives real time
    up for good when that happens.

    Attributes:
        name: ``real-time``, ``nice -10`` or ``normal``.
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            prctl(_PR_SET_TIMERSLACK, 1)  # ns; wake-ups are 50 us late by default
        self._checked_s = time.monotonic()
        self._used_s = time.process_time()
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
            self.name = "real-time"
        except OSError:
            self._be_nice()

    def keep_fair(self, now_s: float) -> None:
        """Look twice a second whether real time is still fair to the rest of the machine."""
        if now_s - self._checked_s < _CHECK_EVERY_S or self.name != "real-time":
            return
        used_s = time.process_time()
        if used_s - self._used_s > _LARGEST_SHARE * (now_s - self._checked_s):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            self._be_nice()
        self._checked_s, self._used_s = now_s, used_s

    def _be_nice(self) -> None:
        with contextlib.suppress(OSError):  # where sessions are scheduled as groups, nice counts only within one
            Path("/proc/self/autogroup").write_text(str(_NICE))
        try:
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
            self.name = f"nice {_NICE}"
        except OSError:
            self.name = "normal"
        number, nice = _SCHED_SETATTR.get(os.uname().machine), os.getpriority(os.PRIO_PROCESS, 0)
        if number is not None:
            # From Linux 6.12 on everyone may ask for short time slices: who takes little at a time is let in sooner.
            attributes = _SCHED_ATTRIBUTES.pack(_SCHED_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
            ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_int(0), attributes, ctypes.c_uint(0))


_LONGEST_SLEEP_MS = 500
_DEAF_S = (0.0001, 0.002)  # at least, for it costs much; at most, for a burst must not overrun the receive rings
_FLUSH_S = 0.02
_WATCH_S = 0.1


class Relay:
    """Forwards by destination address: to one node, or (broadcast, multicast) to all others; else a frame is ignored.

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
        deaf_s = self._deaf_s()
        looked_s = now_s = monotonic()
        look_s = next_s = due_s = 0.0  # when to look for what has come, when something happens, when a frame is due
        while True:
            # Frames that come meanwhile carry the time at which they came, and none can be due before the look-ahead
            # is over. Not waking for them halves the relay's work, and spares the senders the waking.
            if now_s > look_s - 0.25 * deaf_s or next_s < due_s:
                if self._playback.obey(schedule.switch, self._change):
                    deaf_s = self._deaf_s()
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

    def _deaf_s(self) -> float:
        """For so long nothing that comes has to be known of."""
        return min(max(self._schedule.look_ahead_s(), _DEAF_S[0]), _DEAF_S[1])

    def _change(self, content: bytes) -> None:
        """Be the link of a model that the agent has written (``RelayBackend.change``)."""
        self._schedule.change(time.monotonic(), pickle.loads(content))

    def _take_in(self, earliest_s: float, now_s: float) -> None:
        """Submit what has come since ``earliest_s``, the last time that we looked."""
        clock_offset_s = time.time() - now_s  # read anew each time, since somebody may set the clock
        submit, touch = self._schedule.submit, self._statistics.touch
        for src, port in enumerate(self._ports):
            tallies = self._tallies[src]
            for came_s, frame in port.receive(clock_offset_s):
                tally = tallies.get(frame[DESTINATION]) or self._find(src, frame)
                if tally is None:
                    if frame[VNET_BYTES] & _GROUP:
                        self._flood(came_s, src, frame)
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

    def _flood(self, now_s: float, src: int, frame: bytes) -> None:
        """Submit what is for everybody, a copy for each other node, as if the sender had sent them one by one."""
        frames, wire_bytes, is_ack = charge(frame)
        for dst in range(len(self._ports)):
            if dst != src:
                tally = self._statistics.tally(src, dst)
                tally.add(frames, wire_bytes, is_ack=is_ack)
                if not tally.changed:
                    self._statistics.touch(tally)
                self._schedule.submit(now_s, src, dst, wire_bytes, frame)

    def _find(self, src: int, frame: bytes) -> PairTally | None:
        """The counters of the pair that a frame belongs to, None where it is for no single other node."""
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
            self._statistics.overrun(sum(port.overruns() for port in self._ports))
            self._statistics.used(self._turns)
            self._turns = 0
            self.priority.keep_fair(now_s)
