"""Being on time on a machine whose cores are busy training."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from pathlib import Path

from bwbench.network import namespaces

_NICE = -10
# Of a core: beyond that a real-time relay would keep others from running, who can move to another core if there is one.
_LARGEST_SHARE = 0.9 if (os.cpu_count() or 1) > 1 else 0.6
_CHECK_EVERY_S = 0.5


# Its arguments are in no library; the number of the system call depends on the processor.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_SCHED_ATTRIBUTES = struct.Struct("=IIQiIQQQ")  # size, policy, flags, nice, priority, runtime, deadline, period
_SLICE_NS = 100_000


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
            namespaces.prctl(namespaces.PR_SET_TIMERSLACK, 1)  # ns; wake-ups are 50 us late by default
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
