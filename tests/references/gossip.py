"""References for averaging weights with peers: decentralized SGD and its low-precision form."""

from __future__ import annotations

from typing import Any

from tests.references.compressors import minmax_uint8
from tests.references.replicas import Replicas, Roundtrip, mean
from tests.references.rules import Tensors


def shift_one_peer(rank: int, ranks: int, count: int) -> int:
    """Bagua's pairs: rank < N/2: ((count + rank) mod floor((N+1)/2)) + N/2, else (rank - N/2 - count) mod N/2."""
    if rank < ranks // 2:
        return (count + rank) % ((ranks + 1) // 2) + ranks // 2
    return (rank - ranks // 2 - count) % (ranks // 2)


class Decentralized(Replicas):
    """D-PSGD (Lian 2017) as Bagua: x_i <- mean_j x_j - lr g(x_i), j over all ranks, or over i and its pair.

    The weights at the step's begin are sent and averaged; then the rule runs from the mean, with the gradient
    at the own weights before the mean (its weight decay takes the mean's weights). Optimizer states stay local.
    Step t (from 0) exchanges when t >= first and (t - first) mod interval = 0: first = 0 begins with the first
    step, first = interval - 1 when `interval` gradients have been computed. shift-one takes the count of
    exchanges so far, or t itself (count_by = "steps"), plus count_start. N = 1: plain training.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        peers: str = "all",
        interval: int = 1,
        first: int = 0,
        count_by: str = "exchanges",
        count_start: int = 0,
        **options: Any,
    ) -> None:
        """peers: "all" or "shift-one" (N even)."""
        super().__init__(parameters, lr, **options)
        self.peers, self.interval, self.first = peers, interval, first
        self.count_by, self.count_start = count_by, count_start
        self.exchanges = 0

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        t = self.steps_done
        if self.ranks > 1 and t >= self.first and (t - self.first) % self.interval == 0:
            count = self.count_start + (self.exchanges if self.count_by == "exchanges" else t)
            before = [self.flat(tensors) for tensors in self.parameters]
            for rank in range(self.ranks):
                if self.peers == "all":
                    group = list(range(self.ranks))
                else:
                    group = sorted((rank, shift_one_peer(rank, self.ranks, count)))
                self.parameters[rank] = self.unflat(mean([before[peer] for peer in group]))
            self.exchanges += 1
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1


class LowPrecisionDecentralized(Replicas):
    """Bagua's low-precision decentralized SGD (DCD-PSGD, Tang 2018) on a ring.

    After the rule: z = x + (L + R) / 3 - 5/3 o, where o, L, R are the copies that the rank keeps of its own and its
    neighbours' last sent weights (all begin as the start weights); Q(z) goes both ways; L += Q(z_L), R += Q(z_R),
    x = o = o + Q(z). Q takes the one flat vector. Exchanges at step t as in Decentralized.
    N = 2: "half" is one neighbour with weight 1/2, z = x + O / 2 - 3/2 o; "literal" takes L = R = the other in
    the formula for a ring. N = 1: plain training.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        roundtrip: Roundtrip = minmax_uint8,
        interval: int = 1,
        first: int = 0,
        two_ranks: str = "half",
        **options: Any,
    ) -> None:
        """Copies of the neighbours' weights are the neighbours' own `o`: they stay equal, so one list is kept."""
        super().__init__(parameters, lr, **options)
        self.roundtrip, self.interval, self.first, self.two_ranks = roundtrip, interval, first, two_ranks
        self.copies = [self.flat(tensors) for tensors in self.parameters]

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        t, ranks, copies = self.steps_done, self.ranks, self.copies
        if ranks > 1 and t >= self.first and (t - self.first) % self.interval == 0:
            sent = []
            for rank in range(ranks):
                x = self.flat(self.parameters[rank])
                left, right = copies[(rank - 1) % ranks], copies[(rank + 1) % ranks]
                if ranks == 2 and self.two_ranks == "half":
                    z = x + left / 2 - copies[rank] * (3 / 2)
                else:
                    z = x + (left + right) / 3 - copies[rank] * (5 / 3)
                sent.append(self.roundtrip(z))
            self.copies = [copy + message for copy, message in zip(copies, sent, strict=True)]
            self.parameters = [self.unflat(copy) for copy in self.copies]
        self.steps_done += 1
