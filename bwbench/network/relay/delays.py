"""How long frames are under way between two nodes: delays that wander, or that are drawn anew for every frame."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from bwbench.network.link import Link
from bwbench.network.link.chance import ENTRIES, INTERVAL_JITTERS, SCALE, Wander, quantile_at, quantiles
from bwbench.network.link.node_link import Path


class AbstractDelays(ABC):
    """Says how long a frame is under way, from the distribution's table; never less than 0 s.

    Without ``reorder`` the frames from one node to another keep their order: one that would overtake arrives together
    with the one before it.

    Args:
        paths: between nodes, ``paths[src][dst]``.

    Attributes:
        shortest_s: no delay is shorter, on whichever path.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]]) -> None:
        self._table = [entry / SCALE for entry in quantiles(link.jitter_distribution)]
        self._paths = [[(path.latency_s, path.jitter_s) for path in row] for row in paths]
        self._keeps_order = not link.reorder
        self._last_s: dict[tuple[int, int], float] = {}
        lowest = min(self._table)
        self.shortest_s = max(0.0, min(latency + jitter * lowest for row in self._paths for latency, jitter in row))

    @abstractmethod
    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        """How much longer than the mean the frame is under way, in standard deviations; ``jitter_s`` is not 0."""

    def arrival_s(self, sent_s: float, src: int, dst: int) -> float:
        """When a frame that was sent at ``sent_s`` arrives; calls for one pair come in the order of sending."""
        delay_s, jitter_s = self._paths[src][dst]
        if jitter_s:
            delay_s += jitter_s * self._deviation(sent_s, src, dst, jitter_s)
        return self.in_order(sent_s + delay_s if delay_s > 0 else sent_s, src, dst)

    def in_order(self, arrival_s: float, src: int, dst: int) -> float:
        """When a frame arrives that would by itself at ``arrival_s``: not before those of its pair before it."""
        if not self._keeps_order:
            return arrival_s
        pair = src, dst
        last_s = self._last_s.get(pair, 0.0)
        if arrival_s < last_s:
            return last_s
        self._last_s[pair] = arrival_s
        return arrival_s

    def forget(self) -> None:
        """Times have moved: who is under way is told anew by ``in_order``."""
        self._last_s.clear()


class IndependentDelays(AbstractDelays):
    """Draws the delay of every frame anew, as netem does.

    Where frames come closer together than their delays vary, keeping their order makes nearly all of them wait for a
    slow one: their mean is above the latency then, and their deviation below the jitter.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]]) -> None:
        super().__init__(link, paths)
        self._random = [random.Random(f"{link.seed} jitter {src}").random for src in range(len(paths))]

    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        return self._table[int(self._random[src]() * ENTRIES)]


class CorrelatedDelays(AbstractDelays):
    """Every pair of nodes has a delay that wanders, whoever is under way: see ``Wander``.

    It changes so slowly that no frame catches up with the one before it: mean and deviation are those asked for,
    however close frames come. Time counts from a pair's first frame.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]]) -> None:
        super().__init__(link, paths)
        self._seed = link.seed
        self._begun: dict[tuple[int, int], tuple[float, Wander]] = {}

    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        begun = self._begun.get((src, dst))
        if begun is None:
            wander = Wander(f"{self._seed} jitter {src} {dst}", INTERVAL_JITTERS * jitter_s)
            self._begun[src, dst] = begun = sent_s, wander
        begin_s, wander = begun
        return quantile_at(self._table, wander.at(max(0.0, sent_s - begin_s)))


def delays_of(link: Link, paths: Sequence[Sequence[Path]]) -> AbstractDelays:
    """The delays that ``link`` asks for."""
    return (CorrelatedDelays if link.jitter_kind == "correlated" else IndependentDelays)(link, paths)
