"""Whether a worker still gets on, from what can be seen of it on its own host."""

from __future__ import annotations

from collections.abc import Sequence

import psutil

from bwbench.network.namespaces.backend import WireCounters
from bwbench.running.launch.dead_links import DeadLinks
from bwbench.running.launch.stalls import COMPUTING_SHARE, STOPPED_AFTER_S, is_stopped
from bwbench.running.launch.tcp_table import unanswered

# Others may compute for long while this rank waits, and what they do cannot be seen from here.
IDLE_LIMIT_S = 300.0
STILL_BPS = 16_000.0  # bits a second over the interface: what other programs say in passing is less than any training
_NO_COUNTERS = WireCounters()  # whose end of a link is dead cannot be told from one host


class CompanionWatch:
    """Looked at once a second.

    Args:
        pid: of the worker.
        addresses: of all ranks, in order.
        interface: towards them; None on one node.
    """

    def __init__(self, pid: int, addresses: Sequence[str], interface: str | None) -> None:
        self._pid, self._interface = pid, interface
        self._dead_links = DeadLinks(addresses)
        self._looked_s: float | None = None
        self._used_s = self._crossed = 0.0
        self._moved_s = 0.0
        self._stopped_s: float | None = None

    def heard(self, now_s: float) -> None:
        """The worker has said something."""
        self._moved_s = now_s

    def look(self, now_s: float) -> str | None:
        """Why the worker will not get on; None where it may."""
        used_s, crossed = self._cpu_time_s(), self._crossed_bytes()
        if self._looked_s is None:
            self._moved_s = now_s
        else:
            span_s = now_s - self._looked_s
            computes = used_s - self._used_s > COMPUTING_SHARE * span_s
            sends = 8 * (crossed - self._crossed) > STILL_BPS * span_s
            if computes or sends:
                self._moved_s = now_s
        self._looked_s, self._used_s, self._crossed = now_s, used_s, crossed
        self._dead_links.look(now_s, unanswered(self._pid), _NO_COUNTERS)
        if (dead := self._dead_links.verdict(now_s, _NO_COUNTERS)) is not None:
            return dead
        self._stopped_s = (self._stopped_s or now_s) if is_stopped(self._pid) else None
        if self._stopped_s is not None and now_s - self._stopped_s >= STOPPED_AFTER_S:
            return f"it was stopped (SIGSTOP) {now_s - self._stopped_s:.0f} s ago and has not gone on"
        if now_s - self._moved_s > IDLE_LIMIT_S:
            return f"it has waited for its peers for {now_s - self._moved_s:.0f} s, and nothing has come"
        return None

    def _cpu_time_s(self) -> float:
        try:
            times = psutil.Process(self._pid).cpu_times()
        except psutil.Error:
            return self._used_s
        return float(times.user + times.system)

    def _crossed_bytes(self) -> float:
        if self._interface is None:
            return 0.0
        found = psutil.net_io_counters(pernic=True, nowrap=False).get(self._interface)
        return float(found.bytes_sent + found.bytes_recv) if found else self._crossed
