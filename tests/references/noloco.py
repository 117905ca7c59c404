"""The reference of NoLoCo, from the formula of its paper and the signs of its authors' program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from tests.references.replicas import Replicas, mean
from tests.references.rules import Tensors

Peers = Callable[[int], Sequence[int]]


class NoLoCo(Replicas):
    """NoLoCo (Kolehmainen 2025, arXiv 2506.10911, the modified Nesterov step; gensyn-ai/noloco, SparseOptimizerC).

    After H inner steps replica i with slow weights phi_i and weights x_i has D_i = phi_i - x_i, and with the n replicas
    of its group (two, drawn anew each time)

        delta_i <- alpha delta_i - beta/n sum_j D_j - gamma (phi_i - 1/n sum_j phi_j)
        phi_i <- phi_i + delta_i          x_i <- phi_i

    Signs as in the program: it adds beta mean(x - phi) and beta (mean(phi) - phi), so that its gamma is beta. delta = 0
    at first. Inner optimizer states stay local and go on.

    overlap tau (not in the paper): D and phi are those after step t, the step is taken after the inner update of step
    t + tau, and what was learnt meanwhile stays: x_i <- phi_i + (x_i - x_t,i). What is due arrives before the next
    round leaves.
    """

    def __init__(
        self,
        parameters: list[Tensors],
        lr: float,
        *,
        period: int,
        peers: Peers | None,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.5,
        pull: float = 1.0,
        overlap: int = 0,
        **options: Any,
    ) -> None:
        """`period` is H, `outer_lr` beta, `outer_momentum` alpha, `pull` gamma; peers(round), counted from 0, is the
        peer of each rank, None: one group of all.
        """
        super().__init__(parameters, lr, **options)
        self.period, self.peers, self.overlap = period, peers, overlap
        self.beta, self.alpha, self.gamma = outer_lr, outer_momentum, pull
        self.slow = [self.flat(tensors) for tensors in self.parameters]
        self.deltas = [self.zeros() for _ in range(self.ranks)]
        self.rounds = 0
        self.travelling: list[tuple[int, int, Tensors]] = []

    def groups(self, number: int) -> list[list[int]]:
        """Those that rank i averages with, itself among them, for each i."""
        if self.peers is None:
            return [list(range(self.ranks)) for _ in range(self.ranks)]
        peers = self.peers(number)
        for rank, peer in enumerate(peers):
            if peer == rank or peers[peer] != rank:
                raise ValueError(f"round {number}: {peers} are no pairs")
        return [sorted((rank, peer)) for rank, peer in enumerate(peers)]

    def outer_step(self, number: int, taken: Tensors) -> None:
        """With the weights that were taken, by rank."""
        slow, weights = list(self.slow), [self.flat(tensors) for tensors in self.parameters]
        changes = [phi - x for phi, x in zip(slow, taken, strict=True)]
        for rank, group in enumerate(self.groups(number)):
            change: Tensor = mean([changes[member] for member in group])
            middle: Tensor = mean([slow[member] for member in group])
            self.deltas[rank] = self.alpha * self.deltas[rank] - self.beta * change - self.gamma * (slow[rank] - middle)
            self.slow[rank] = slow[rank] + self.deltas[rank]
            self.parameters[rank] = self.unflat(self.slow[rank] + (weights[rank] - taken[rank]))

    def step(self, gradients: list[Tensors]) -> None:
        """One step."""
        for rank, grads in enumerate(gradients):
            self.use(rank, grads)
        self.steps_done += 1
        while self.travelling and self.travelling[0][0] == self.steps_done:
            _, number, taken = self.travelling.pop(0)
            self.outer_step(number, taken)
        if self.steps_done % self.period == 0:
            taken = [self.flat(tensors) for tensors in self.parameters]
            if self.overlap == 0:
                self.outer_step(self.rounds, taken)
            else:
                self.travelling.append((self.steps_done + self.overlap, self.rounds, taken))
            self.rounds += 1
