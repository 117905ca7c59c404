"""How long frames are under way between two nodes: delays that wander, or that are drawn anew for every frame."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence

from bwbench.network.link import Link
from bwbench.network.link.chance import ENTRIES, INTERVAL_JITTERS, SCALE, Wander, quantile_at, quantiles
from bwbench.network.link.mobile import HandOver
from bwbench.network.link.node_link import Path


class HandOvers:
    """What the paths of the nodes add to a delay, and lose, while the link plays: see ``HandOver``.

    Attributes:
        since_s: when the link began to play; None while it is steady.
    """

    def __init__(self, asked: HandOver, seed: int, num_nodes: int) -> None:
        self._asked, self._seed = asked, seed
        self.since_s: float | None = None
        self._moves = [asked.nodes is None or node in asked.nodes for node in range(num_nodes)]
        self._paths: dict[int, tuple[int, float]] = {}  # of each node: number of its path, and what that adds
        self._draw = random.Random(f"{seed} hand-over").random

    def added_s(self, time_s: float, src: int, dst: int) -> float:
        """What a frame that is sent at this time takes longer; less than 0: less long."""
        number, is_now = self._at(time_s)
        if number < 0:
            return 0.0
        extra_s = self._asked.extra_s if is_now else 0.0
        return sum(self._path_s(node, number) + extra_s for node in (src, dst) if self._moves[node]) / 2

    def is_lost(self, time_s: float, src: int, dst: int) -> bool:
        """Whether a frame that arrives at this time is lost by a hand-over."""
        if not self._asked.loss or not self._at(time_s)[1]:
            return False
        share = (self._moves[src] + self._moves[dst]) / 2
        return share > 0 and self._draw() < self._asked.loss * share

    def _at(self, time_s: float) -> tuple[int, bool]:
        """Number of the path, and whether it has just begun; -1 while there is none."""
        if self.since_s is None or time_s < self.since_s:
            return -1, False
        number, into_s = divmod(time_s - self.since_s, self._asked.every_s)
        return int(number), number > 0 and into_s < self._asked.lasts_s

    def _path_s(self, node: int, number: int) -> float:
        known, added_s = self._paths.get(node, (-1, 0.0))
        if known != number:
            added_s = random.Random(f"{self._seed} path {node} {number}").uniform(-1, 1) * self._asked.spread_s
            self._paths[node] = number, added_s
        return added_s


class AbstractDelays(ABC):
    """Says how long a frame is under way, from the distribution's table; never less than 0 s.

    Without ``reorder`` the frames from one node to another keep their order: one that would overtake arrives together
    with the one before it.

    Args:
        paths: between nodes, ``paths[src][dst]``.
        hand_overs: what new paths add; None where there are none.

    Attributes:
        shortest_s: no delay is shorter, on whichever path.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]], hand_overs: HandOvers | None = None) -> None:
        self._hand_overs = hand_overs
        self._table = [entry / SCALE for entry in quantiles(link.jitter_distribution)]
        self._paths = [[(path.latency_s, path.jitter_s) for path in row] for row in paths]
        self._keeps_order = not link.reorder
        self._last_s: dict[tuple[int, int], float] = {}
        lowest = min(self._table)
        shortest_s = min(latency + jitter * lowest for row in self._paths for latency, jitter in row)
        self.shortest_s = max(0.0, shortest_s - (link.handover.spread_s if link.handover else 0.0))

    @abstractmethod
    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        """How much longer than the mean the frame is under way, in standard deviations; ``jitter_s`` is not 0."""

    def arrival_s(self, sent_s: float, src: int, dst: int) -> float:
        """When a frame that was sent at ``sent_s`` arrives; calls for one pair come in the order of sending."""
        delay_s, jitter_s = self._paths[src][dst]
        if jitter_s:
            delay_s += jitter_s * self._deviation(sent_s, src, dst, jitter_s)
        if self._hand_overs is not None:
            delay_s += self._hand_overs.added_s(sent_s, src, dst)
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

    def follow(self, before: AbstractDelays) -> None:
        """Take over from ``before``: what it has let go is not overtaken."""
        self._last_s = before._last_s

    def forget(self) -> None:
        """Times have moved: who is under way is told anew by ``in_order``."""
        self._last_s.clear()


class IndependentDelays(AbstractDelays):
    """Draws the delay of every frame anew, as netem does.

    Where frames come closer together than their delays vary, keeping their order makes nearly all of them wait for a
    slow one: their mean is above the latency then, and their deviation below the jitter.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]], hand_overs: HandOvers | None = None) -> None:
        super().__init__(link, paths, hand_overs)
        self._random = [random.Random(f"{link.seed} jitter {src}").random for src in range(len(paths))]

    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        return self._table[int(self._random[src]() * ENTRIES)]


class CorrelatedDelays(AbstractDelays):
    """Every pair of nodes has a delay that wanders, whoever is under way: see ``Wander``.

    It changes so slowly that no frame catches up with the one before it: mean and deviation are those asked for,
    however close frames come. Time counts from a pair's first frame.
    """

    def __init__(self, link: Link, paths: Sequence[Sequence[Path]], hand_overs: HandOvers | None = None) -> None:
        super().__init__(link, paths, hand_overs)
        self._seed = link.seed
        self._begun: dict[tuple[int, int], tuple[float, Wander]] = {}

    def _deviation(self, sent_s: float, src: int, dst: int, jitter_s: float) -> float:
        begun = self._begun.get((src, dst))
        if begun is None:
            wander = Wander(f"{self._seed} jitter {src} {dst}", INTERVAL_JITTERS * jitter_s)
            self._begun[src, dst] = begun = sent_s, wander
        begin_s, wander = begun
        return quantile_at(self._table, wander.at(max(0.0, sent_s - begin_s)))


def delays_of(link: Link, paths: Sequence[Sequence[Path]], hand_overs: HandOvers | None = None) -> AbstractDelays:
    """The delays that ``link`` asks for."""
    return (CorrelatedDelays if link.jitter_kind == "correlated" else IndependentDelays)(link, paths, hand_overs)
