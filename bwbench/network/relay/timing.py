"""Being on time: when the relay wakes up, rarely enough to be cheap, often enough to be exact; and its priority.

Waking up costs as much as several frames. So frames that are due at nearly the same time leave together: some of them a
little early, some a little late, on average neither. Network cards do likewise before they interrupt (``ethtool -c``),
and for about as long. A frame by itself, such as a ping on an idle link, leaves when it is due. On a machine whose
cores are busy training, a priority lets the relay run at all when it has woken up.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from pathlib import Path

from bwbench.base.die_with_parent import prctl

_SHARE_OF_LATENCY = 1 / 6
_SHARE_OF_PACKET = 1 / 2  # bursts of several packets would fill a queue that they do not fill one by one
_FEWEST_S, _MOST_S = 50e-6, 400e-6  # no less, since waking up is no more exact than that
_LEARNING_RATE = 0.05
# From this share of a core on bursts are the lesser evil: waking up less often leaves time for more frames.
_BUSY, _VERY_BUSY = 0.4, 0.7

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


def _ask_for_short_slices(nice: int) -> None:
    """From Linux 6.12 on everyone may ask for short time slices: who takes little at a time is let in sooner."""
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is not None:
        attributes = _SCHED_ATTRIBUTES.pack(_SCHED_ATTRIBUTES.size, os.SCHED_OTHER, 0, nice, 0, _SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(ctypes.c_long(number), ctypes.c_int(0), attributes, ctypes.c_uint(0))


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
        _ask_for_short_slices(os.getpriority(os.PRIO_PROCESS, 0))
