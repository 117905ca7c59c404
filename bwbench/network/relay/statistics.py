"""The relay's counters, in memory shared with the agent: written by one process, readable by the other at any time."""

from __future__ import annotations

import itertools
import mmap
from typing import Any

from bwbench.network.backend import PairCounter, WireCounters

_WORD_BYTES = 8
_FRAMES, _BYTES, _ACK_FRAMES, _ACK_BYTES, _DROPS = range(5)
_PAIR_WORDS = 5
_OVERRUNS, _UNSENT, _MAX_LATENESS, _HEADER_WORDS = range(4)
_BIN_NS = 20_000  # lateness is told to 20 us, up to 100 ms; whatever is beyond falls into the last bin
_NUM_BINS = 5_000


class RelayStatistics:
    """Counters per pair, a histogram of lateness, and what went wrong. Each word has one writer: the relay."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes
        self._pairs_at = _HEADER_WORDS
        self._bins_at = _HEADER_WORDS + num_nodes * num_nodes * _PAIR_WORDS
        self._memory = mmap.mmap(-1, (self._bins_at + _NUM_BINS) * _WORD_BYTES)
        self._words = memoryview(self._memory).cast("Q")

    def sent(self, src: int, dst: int, frames: int, num_bytes: int, is_ack: bool) -> None:
        """``src`` has sent these frames towards ``dst``."""
        words, pair = self._words, self._pair(src, dst)
        words[pair] += frames
        words[pair + _BYTES] += num_bytes
        if is_ack:
            words[pair + _ACK_FRAMES] += frames
            words[pair + _ACK_BYTES] += num_bytes

    def refused(self, src: int, dst: int, frames: int, num_bytes: int, is_ack: bool) -> None:
        """Frames counted by ``sent`` found no room in their sender's queue: they never entered the link."""
        words, pair = self._words, self._pair(src, dst)
        words[pair] -= frames
        words[pair + _BYTES] -= num_bytes
        if is_ack:
            words[pair + _ACK_FRAMES] -= frames
            words[pair + _ACK_BYTES] -= num_bytes

    def dropped(self, src: int, dst: int, frames: int) -> None:
        """Frames from ``src`` to ``dst`` were lost."""
        self._words[self._pair(src, dst) + _DROPS] += frames

    def late(self, lateness_s: float) -> None:
        """A frame was sent this long after it was due."""
        lateness_ns = int(lateness_s * 1e9)
        index = lateness_ns // _BIN_NS
        self._words[self._bins_at + (index if index < _NUM_BINS else _NUM_BINS - 1)] += 1
        if lateness_ns > self._words[_MAX_LATENESS]:
            self._words[_MAX_LATENESS] = lateness_ns

    def overrun(self, frames: int) -> None:
        """Frames were lost because the relay did not read them in time: the machine's fault, not the link's."""
        self._words[_OVERRUNS] += frames

    def unsent(self) -> None:
        """The kernel did not take a frame that was due: no buffer, or the interface is down."""
        self._words[_UNSENT] += 1

    def counters(self) -> WireCounters:
        """The counters of all pairs that have sent anything."""
        words = self._words
        pairs = {}
        for src in range(self._num_nodes):
            for dst in range(self._num_nodes):
                pair = self._pair(src, dst)
                figures = PairCounter(*words[pair : pair + _PAIR_WORDS])
                if figures.frames or figures.drops:
                    pairs[src, dst] = figures
        return WireCounters(pairs)

    def health(self) -> dict[str, Any]:
        """Lateness quantiles (None before the first frame), and what was lost for other reasons than the link's."""
        bins = self._words[self._bins_at : self._bins_at + _NUM_BINS].tolist()
        max_s = self._words[_MAX_LATENESS] * 1e-9
        return {
            "lateness_p50_s": _quantile(bins, 0.5, max_s),
            "lateness_p99_s": _quantile(bins, 0.99, max_s),
            "lateness_max_s": max_s if any(bins) else None,
            "overruns": self._words[_OVERRUNS],
            "unsent": self._words[_UNSENT],
        }

    def close(self) -> None:
        """Let go of the memory. Safe to call twice."""
        self._words.release()
        self._memory.close()

    def _pair(self, src: int, dst: int) -> int:
        return self._pairs_at + (src * self._num_nodes + dst) * _PAIR_WORDS


def _quantile(bins: list[int], share: float, max_s: float) -> float | None:
    """The upper edge of the bin that holds this quantile, in seconds."""
    wanted = sum(bins) * share
    if wanted == 0:
        return None
    below = sum(1 for seen in itertools.accumulate(bins) if seen < wanted)
    return min((below + 1) * _BIN_NS * 1e-9, max_s)
