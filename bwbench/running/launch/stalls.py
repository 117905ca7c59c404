"""Whether anybody still gets on: what ranks compute, what crosses the wire, and who has been stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

STALL_AFTER_S = 25.0  # nothing sent and nothing computed by anyone for this long: nobody is going to
# Some ranks compute, all others wait, and nothing is sent: an uneven step, or a rank that will never be done with it.
ALONE_LIMIT_S = 300.0
STOPPED_AFTER_S = 20.0
COMPUTING_SHARE = 0.05  # of a processor: waiting threads wake up now and then, which takes far less
_SPAN_S = 2.0  # CPU time is told in steps of 10 ms, so that a share needs a while to be one


class Stalls:
    """Told once a second what the ranks have used and sent.

    Args:
        num_ranks: of the group.
        pause_s: how long a rank may rightly do nothing: the time that steps are padded to.
    """

    def __init__(self, num_ranks: int, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s
        self._stopped_s: list[float | None] = [None] * num_ranks
        self._computing = [True] * num_ranks
        self._used_s: Sequence[float] = [0.0] * num_ranks
        self._span_began_s = self._moved_s = self._computed_s = 0.0
        self._sent: object = None

    def forget(self, now_s: float) -> None:
        """Everybody is fine as of now: a rank has reported something, or nobody has looked for a while."""
        self._moved_s = self._computed_s = now_s

    def look(self, now_s: float, cpu_time_s: Sequence[float], stopped: Sequence[bool], sent: object) -> None:
        """Take in what the ranks have used so far, which are stopped, and something that changes with what is sent."""
        self._stopped_s = [
            (now_s if since is None else since) if is_stopped else None
            for since, is_stopped in zip(self._stopped_s, stopped, strict=True)
        ]
        if sent != self._sent:
            self._sent, self._moved_s = sent, now_s
        if (span_s := now_s - self._span_began_s) >= _SPAN_S:
            used = zip(cpu_time_s, self._used_s, strict=True)
            self._computing = [after - before > COMPUTING_SHARE * span_s for after, before in used]
            self._span_began_s, self._used_s = now_s, cpu_time_s
        if all(self._computing):
            self._moved_s = now_s
        if any(self._computing):
            self._computed_s = now_s

    def verdict(self, now_s: float, stall_after_s: float = STALL_AFTER_S) -> str | None:
        """Why the group will not get on; None where it does."""
        for rank, since_s in enumerate(self._stopped_s):
            if since_s is not None and now_s - since_s >= STOPPED_AFTER_S:
                return f"rank {rank} was stopped (SIGSTOP) {now_s - since_s:.0f} s ago and has not gone on"
        idle_s = now_s - max(self._moved_s, self._computed_s)
        if idle_s > stall_after_s + self._pause_s:
            return f"no rank has computed or sent anything for {idle_s:.0f} s: the ranks wait for one another"
        if (alone_s := now_s - self._moved_s) > ALONE_LIMIT_S + self._pause_s:
            ranks = [rank for rank, computing in enumerate(self._computing) if computing]
            text = f"rank {ranks[0]} computes" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} compute"
            return f"{text} while all others wait, and nothing has been sent for {alone_s:.0f} s"
        return None


def is_stopped(pid: int) -> bool:
    """Whether a process has been stopped by a signal; a debugger's stop is another state."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"
    return False
