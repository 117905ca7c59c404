"""What happens to frames by chance: delays that vary, and losses. Each has random numbers of its own, by the seed.

So the frames that are lost stay the same when the jitter changes, and what one receiver loses does not depend on what
others are sent.
"""

from __future__ import annotations

import random

from bwbench.network.link.jitter import ENTRIES, SCALE, quantiles
from bwbench.network.relay.model import RelayModel


class Delays:
    """Draws how long a frame is under way between two nodes, from the distribution's table; never less than 0 s.

    Without ``reorder`` the frames from one node to another keep their order: one that would overtake arrives together
    with the one before it.

    Attributes:
        shortest_s: no delay is shorter, on whichever path.
    """

    def __init__(self, model: RelayModel) -> None:
        table = quantiles(model.jitter_distribution)
        self._table = [entry / SCALE for entry in table]
        self._paths = [[(path.latency_s, path.jitter_s) for path in row] for row in model.paths]
        self._random = [random.Random(f"{model.seed} jitter {src}").random for src in range(model.num_nodes)]
        self._keeps_order = not model.reorder
        self._last_s: dict[tuple[int, int], float] = {}
        lowest = min(self._table)
        self.shortest_s = max(0.0, min(latency + jitter * lowest for row in self._paths for latency, jitter in row))

    def arrival_s(self, sent_s: float, src: int, dst: int) -> float:
        """When a frame that was sent at ``sent_s`` arrives; calls for one pair come in the order of sending."""
        latency_s, jitter_s = self._paths[src][dst]
        delay_s = latency_s + jitter_s * self._table[int(self._random[src]() * ENTRIES)]
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


class Losses:
    """Draws which frames are lost: each by itself with its path's probability, or in bursts.

    For bursts every receiving node has a Gilbert-Elliott chain of its own that moves with each frame for it, as netem's
    has that sits before a node. It begins in the good state.
    """

    def __init__(self, model: RelayModel) -> None:
        self._loss = [[path.loss for path in row] for row in model.paths]
        self._random = [random.Random(f"{model.seed} loss {dst}").random for dst in range(model.num_nodes)]
        self._chain = model.burst_loss
        self._is_bad = [False] * model.num_nodes

    def is_lost(self, src: int, dst: int) -> bool:
        """Whether the next frame that reaches ``dst``, which comes from ``src``, is lost."""
        draw, chain = self._random[dst], self._chain
        if chain is None:
            return draw() < self._loss[src][dst]
        if self._is_bad[dst]:
            is_bad = draw() >= chain.bad_to_good
        else:
            is_bad = draw() < chain.good_to_bad
        self._is_bad[dst] = is_bad
        return draw() < (chain.loss_in_bad if is_bad else chain.loss_in_good)
