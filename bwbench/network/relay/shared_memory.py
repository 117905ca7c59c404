"""What the relay and the agent share: the relay's counters one way, ``play`` and ``hold`` the other.

Memory, written by one process and readable by the other at any time, so that neither waits for the other.
"""

from __future__ import annotations

import itertools
import mmap
import resource
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable

from bwbench.base.plain_data import JsonObject
from bwbench.network.namespaces.backend import PairCounter, WireCounters

_WORD_BYTES = 8
_PAIR_WORDS = 5
_OVERRUNS, _UNSENT, _WAKE_UPS, _LATENESS_SUM, _LATENESS_MAX, _USER, _SYSTEM, _HEADER_WORDS = range(8)  # times in ns
_BIN_S = 20e-6  # lateness is told to 20 us, up to 100 ms; beyond that to the edges below
_NUM_BINS = 5_000
_LONG_EDGES_S = (0.2, 0.5, 1.0)  # … and the last bin has no end
_LAST_EDGE_S = 10.0
# Upper edges of the compact histogram, in bins
_EDGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 50, 80, 120, 200, 320, 500, 800, 1200, 2000, 3200, _NUM_BINS)

_STEADY = 0
_HEAD_BYTES = 4 * _WORD_BYTES
_LARGEST_CHANGE_BYTES = 1 << 24  # paths of 254 nodes that all differ; memory is taken where something is written


class PairTally:
    """What one node has sent to another, in the relay's own memory until ``RelayStatistics.flush``."""

    __slots__ = ("ack_bytes", "ack_frames", "at", "bytes", "changed", "drops", "dst", "frames")

    def __init__(self, dst: int, at: int) -> None:
        self.dst, self.at = dst, at
        self.frames = self.bytes = self.ack_frames = self.ack_bytes = self.drops = 0
        self.changed = False

    def add(self, frames: int, num_bytes: int, *, is_ack: bool) -> None:
        """These frames have been sent; negative, where they have been counted but found no room."""
        self.frames += frames
        self.bytes += num_bytes
        if is_ack:
            self.ack_frames += frames
            self.ack_bytes += num_bytes


class RelayStatistics:
    """Counters per pair, a histogram of lateness, and what went wrong.

    The relay counts in memory of its own, which is several times cheaper, and makes it visible with ``flush``.
    """

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._bins_at = _HEADER_WORDS + num_nodes * num_nodes * _PAIR_WORDS
        self._bins = array("q", bytes(_WORD_BYTES * (_NUM_BINS + len(_LONG_EDGES_S) + 1)))
        self._end = self._bins_at + len(self._bins)
        self._words = memoryview(mmap.mmap(-1, self._end * _WORD_BYTES)).cast("B").cast("q")
        self._tallies: list[dict[int, PairTally]] = [{} for _ in range(num_nodes)]
        self._changed: list[PairTally] = []
        self._lateness_sum_s = self._lateness_max_s = 0.0

    def tally(self, src: int, dst: int) -> PairTally:
        """The counters of a pair; whoever adds to them calls ``touch`` unless ``changed`` is set already."""
        tally = self._tallies[src].get(dst)
        if tally is None:
            at = _HEADER_WORDS + (src * self._num_nodes + dst) * _PAIR_WORDS
            tally = self._tallies[src][dst] = PairTally(dst, at)
        return tally

    def touch(self, tally: PairTally) -> None:
        """Make the next ``flush`` write this pair's counters."""
        tally.changed = True
        self._changed.append(tally)

    def lost(self, src: int, dst: int, frames: int, num_bytes: int, *, is_ack: bool, entered: bool) -> None:
        """Frames from ``src`` to ``dst`` were lost; those that never entered the link count as sent no longer."""
        tally = self.tally(src, dst)
        tally.drops += frames
        if not entered:
            tally.add(-frames, -num_bytes, is_ack=is_ack)
        if not tally.changed:
            self.touch(tally)

    def late(self, lateness_s: list[float]) -> None:
        """Frames were sent so long after they were due each; a negative time is before."""
        bins = self._bins
        for late_s in lateness_s:
            index = int(late_s / _BIN_S)
            if index < 0:
                index = 0
            elif index >= _NUM_BINS:
                index = _NUM_BINS + bisect_left(_LONG_EDGES_S, late_s)
            bins[index] += 1
        self._lateness_sum_s += sum(lateness_s)
        latest_s = max(lateness_s)
        if latest_s > self._lateness_max_s:
            self._lateness_max_s = latest_s

    def overrun(self, frames: int) -> None:
        """Frames were lost because the relay did not read them in time: the machine's fault, not the link's."""
        self._words[_OVERRUNS] += frames

    def unsent(self) -> None:
        """The kernel did not take a frame that was due: no buffer, or the interface is down."""
        self._words[_UNSENT] += 1

    def flush(self) -> None:
        """Make visible what was counted since the last time: a few microseconds."""
        words = self._words
        for tally in self._changed:
            at, tally.changed = tally.at, False
            figures = (tally.frames, tally.bytes, tally.ack_frames, tally.ack_bytes, tally.drops)
            words[at], words[at + 1], words[at + 2], words[at + 3], words[at + 4] = figures
        self._changed.clear()
        words[self._bins_at : self._end] = memoryview(self._bins)
        words[_LATENESS_SUM] = int(self._lateness_sum_s * 1e9)
        words[_LATENESS_MAX] = int(self._lateness_max_s * 1e9)

    def used(self, wake_ups: int) -> None:
        """The relay has woken up so often since the last call; how much CPU time it has had is looked up."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self._words[_WAKE_UPS] += wake_ups
        self._words[_USER], self._words[_SYSTEM] = int(usage.ru_utime * 1e9), int(usage.ru_stime * 1e9)

    def counters(self) -> WireCounters:
        """The counters of all pairs that have sent anything."""
        words = self._words
        pairs = {}
        for src, dst in itertools.product(range(self._num_nodes), repeat=2):
            at = _HEADER_WORDS + (src * self._num_nodes + dst) * _PAIR_WORDS
            figures = PairCounter(*words[at : at + _PAIR_WORDS])
            if figures.frames or figures.drops:
                pairs[src, dst] = figures
        return WireCounters(pairs)

    def lateness(self) -> JsonObject:
        """How late frames left (due time to sent), in seconds, None before the first; what it lost, and its work.

        ``lateness_histogram`` is told in ``backend.py``; ``overruns`` are frames that came faster than they were read,
        ``unsent`` those that the kernel did not take when they were due; CPU time is as the relay last said.
        """
        words = self._words
        bins = words[self._bins_at : self._end].tolist()
        max_s, num_frames = words[_LATENESS_MAX] * 1e-9, sum(bins)
        rows = [(end * _BIN_S, sum(bins[begin:end])) for begin, end in itertools.pairwise((0, *_EDGES))]
        # The last edge stands for everything beyond the one before.
        rows += zip((*_LONG_EDGES_S, _LAST_EDGE_S), bins[_NUM_BINS:], strict=True)
        return {
            "lateness_p50_s": _quantile(bins, 0.5, max_s),
            "lateness_p99_s": _quantile(bins, 0.99, max_s),
            "lateness_max_s": max_s if num_frames else None,
            "lateness_mean_s": words[_LATENESS_SUM] * 1e-9 / num_frames if num_frames else None,
            "lateness_histogram": [[round(edge_s, 6), frames] for edge_s, frames in rows if frames],
            "overruns": words[_OVERRUNS],
            "unsent": words[_UNSENT],
            "wake_ups": words[_WAKE_UPS],
            "cpu_user_s": words[_USER] * 1e-9,
            "cpu_system_s": words[_SYSTEM] * 1e-9,
        }


def _quantile(bins: list[int], share: float, max_s: float) -> float | None:
    """The upper edge of the bin that holds this quantile, in seconds."""
    wanted = sum(bins) * share
    if wanted == 0:
        return None
    below = sum(1 for seen in itertools.accumulate(bins) if seen < wanted)
    return min((below + 1) * _BIN_S, max_s)


class Playback:
    """Written by the agent, read by the relay in every turn of its loop: hence some words and no message.

    The first holds the time at which the agent said ``play`` (CLOCK_MONOTONIC in ns), 0 while the link is steady. So it
    does not matter how late the relay notices, and a second ``play`` is noticed as well. The second, written before it,
    says how far what varies had got by then (ns). The third counts how often the link has been changed, the fourth says
    how many bytes of another one stand behind it: an even count is one that has been written to its end.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _LARGEST_CHANGE_BYTES)
        self._words = memoryview(self._memory).cast("Q")
        self._obeyed_ns = _STEADY
        self._changed = 0

    def play(self, at_s: float | None) -> None:
        """In the agent: what varies is ``at_s`` after its begin now; None: the link is steady."""
        if at_s is not None:
            self._words[1] = round(at_s * 1e9)
        self._words[0] = _STEADY if at_s is None else time.monotonic_ns()

    def change(self, content: bytes) -> None:
        """In the agent: the link is what ``content`` says from now on; raises ValueError where that is too long."""
        if _HEAD_BYTES + len(content) > _LARGEST_CHANGE_BYTES:
            raise ValueError(f"{len(content)} bytes are too many to be told")
        self._words[2] += 1
        self._memory[_HEAD_BYTES : _HEAD_BYTES + len(content)] = content
        self._words[3] = len(content)
        self._words[2] += 1

    def obey(self, switch: Callable[[float, float | None], None], change: Callable[[bytes], None]) -> bool:
        """In the relay: pass on what the agent has said since the last call. Cheap where it has said nothing.

        Args:
            switch: that of a schedule.
            change: is told what ``change`` was.

        Returns whether the link has become another one.
        """
        is_changed = self._words[2] != self._changed and self._obey_change(change)
        said_ns = self._words[0]
        if said_ns == self._obeyed_ns:
            return is_changed
        self._obeyed_ns, said_s = said_ns, said_ns * 1e-9
        if said_ns == _STEADY:
            switch(time.monotonic(), None)
        else:
            switch(said_s, said_s - self._words[1] * 1e-9)
        return is_changed

    def _obey_change(self, change: Callable[[bytes], None]) -> bool:
        count = self._words[2]
        content = self._memory[_HEAD_BYTES : _HEAD_BYTES + self._words[3]]
        if count % 2 or self._words[2] != count:  # it is being written: the next turn will see it whole
            return False
        self._changed = count
        change(content)
        return True
